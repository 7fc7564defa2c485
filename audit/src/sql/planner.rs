//! Plans by shape: a statement is parsed and analysed once for all its constants.
//!
//! In: text, catalog, settings and parameter types. Out: [`Prepared`]: the plan and this text's constants.
//!
//! Always true: a plan found in the cache is the plan that would have been made.

use super::analyze;
use super::plan::{Asks, Bind, Kind, Planned, Source, Touches};
use super::token::{self, Class, Literal, Shape};
use crate::state::Catalog;
use crate::trace::Parameter;
use crate::value::{self, Context, SqlError, TypeOid, Value, oid};
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};

/// Plans of one catalog that are kept; beyond it the cache starts anew.
const PLANS_MAX: usize = 20_000;
const TEXTS_MAX: usize = 8_000;

/// What a session's settings contribute to the meaning of a statement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SessionSettings {
    /// Schemas in the order they are searched, with `"$user"` replaced.
    pub search_path: Vec<String>,
    pub time_zone: String,
    pub date_style: String,
    pub interval_style: String,
    pub bytea_output: String,
    pub extra_float_digits: i32,
    /// `standard_conforming_strings` off makes backslashes in plain strings mean something.
    pub standard_strings: bool,
    /// `session_replication_role` is `replica`: neither triggers nor foreign keys do anything.
    pub is_replica: bool,
    /// `synchronous_commit` is `off`: a crash may undo what was committed.
    pub commits_early: bool,
    /// The schema of the session's temporary tables; in the search path once there are any.
    pub temporary: Arc<str>,
}

impl Default for SessionSettings {
    fn default() -> SessionSettings {
        SessionSettings {
            search_path: vec!["public".to_owned()],
            time_zone: "UTC".to_owned(),
            date_style: "ISO, MDY".to_owned(),
            interval_style: "postgres".to_owned(),
            bytea_output: "hex".to_owned(),
            extra_float_digits: 1,
            standard_strings: true,
            is_replica: false,
            commits_early: false,
            temporary: Arc::from(crate::state::catalog::TEMPORARY),
        }
    }
}

/// A plan with the constants of one text.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub planned: Arc<Planned>,
    pub literals: Arc<[Value]>,
}

#[derive(Default)]
pub struct Planner {
    cache: Mutex<Cache>,
}

#[derive(Default)]
struct Cache {
    /// By hash of the key: looking one up needs no key of one's own.
    plans: FxHashMap<u64, SmallVec<[Plans; 1]>>,
    texts: FxHashMap<u64, SmallVec<[Text; 1]>>,
    hits: u64,
    misses: u64,
}

/// What besides the text decides the meaning of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Surroundings<'a> {
    catalog: u64,
    search_path: &'a [String],
    parameter_types: &'a [TypeOid],
}

/// The same, to keep.
struct Kept {
    catalog: u64,
    search_path: Box<[String]>,
    parameter_types: Box<[TypeOid]>,
}

/// The plans of one shape.
struct Plans {
    around: Kept,
    shape: Box<str>,
    classes: Box<str>,
    plans: Vec<(Pins, Arc<Planned>)>,
}

/// The plan of one text that comes again and again.
struct Text {
    around: Kept,
    text: Arc<str>,
    part: u16,
    prepared: Prepared,
}

/// Constants that a plan depends on: index and text.
type Pins = Vec<(usize, String)>;

impl Surroundings<'_> {
    fn keep(&self) -> Kept {
        Kept {
            catalog: self.catalog,
            search_path: self.search_path.into(),
            parameter_types: self.parameter_types.into(),
        }
    }

    fn are(&self, kept: &Kept) -> bool {
        self.catalog == kept.catalog
            && *self.parameter_types == *kept.parameter_types
            && *self.search_path == *kept.search_path
    }

    fn hash_with(&self, more: impl Hash) -> u64 {
        let mut hasher = FxHasher::default();
        self.catalog.hash(&mut hasher);
        self.parameter_types.hash(&mut hasher);
        more.hash(&mut hasher);
        hasher.finish()
    }
}

impl Planner {
    pub fn new() -> Planner {
        Planner::default()
    }

    /// Plans statement number `part` of `text`.
    pub fn plan(
        &self,
        catalog: &Catalog,
        text: &Arc<str>,
        part: u16,
        settings: &SessionSettings,
        parameter_types: &[TypeOid],
    ) -> Prepared {
        let mut cache = self
            .cache
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let around = Surroundings {
            catalog: catalog.version(),
            search_path: &settings.search_path,
            parameter_types,
        };
        let text_hash = around.hash_with((&**text, part));
        let known = cache.texts.get(&text_hash).and_then(|texts| {
            let found = |kept: &&Text| kept.part == part && kept.text == *text && around.are(&kept.around);
            texts.iter().find(found).map(|kept| kept.prepared.clone())
        });
        if let Some(prepared) = known {
            cache.hits += 1;
            return prepared;
        }
        let shape = if settings.standard_strings {
            token::shape(text, part)
        } else {
            None
        };
        let Some(shape) = shape else {
            cache.misses += 1;
            return prepare_unshaped(catalog, text, part, settings, parameter_types);
        };
        let literals: Arc<[Value]> = shape.literals.iter().map(literal_value).collect();
        let hash = around.hash_with((&shape.text, &shape.classes));
        let fits = |pins: &Pins| {
            pins.iter()
                .all(|(index, text)| shape.literals[*index].text == *text)
        };
        let of_shape = |plans: &Plans| {
            *plans.shape == *shape.text && *plans.classes == *shape.classes && around.are(&plans.around)
        };
        let found = cache.plans.get(&hash).and_then(|plans| {
            let plans = plans.iter().find(|plans| of_shape(plans))?;
            let (_, planned) = plans.plans.iter().find(|(pins, _)| fits(pins))?;
            Some(planned.clone())
        });
        let prepared = match found {
            Some(planned) => {
                cache.hits += 1;
                Prepared { planned, literals }
            }
            None => {
                cache.misses += 1;
                let (planned, pins) = analyze::statement(
                    catalog,
                    &text[shape.start..shape.end],
                    &shape,
                    settings,
                    parameter_types,
                );
                let planned = Arc::new(planned);
                if cache.plans.len() >= PLANS_MAX {
                    cache.plans.clear();
                }
                let entries = cache.plans.entry(hash).or_default();
                let at = entries.iter().position(of_shape).unwrap_or_else(|| {
                    entries.push(Plans {
                        around: around.keep(),
                        shape: shape.text.as_str().into(),
                        classes: shape.classes.as_str().into(),
                        plans: Vec::new(),
                    });
                    entries.len() - 1
                });
                // A plan that looks at its constants is as good as uncached once there are many of them.
                if entries[at].plans.len() < 64 {
                    let pinned = pins
                        .into_iter()
                        .map(|index| (index, shape.literals[index].text.clone()))
                        .collect();
                    entries[at].plans.push((pinned, planned.clone()));
                }
                Prepared { planned, literals }
            }
        };
        // Texts that will come again: prepared statements and those without constants.
        if prepared.literals.is_empty() || !prepared.planned.parameter_types.is_empty() {
            if cache.texts.len() >= TEXTS_MAX {
                cache.texts.clear();
            }
            cache.texts.entry(text_hash).or_default().push(Text {
                around: around.keep(),
                text: text.clone(),
                part,
                prepared: prepared.clone(),
            });
        }
        prepared
    }

    /// Plans found and plans made.
    pub fn cache_counts(&self) -> (u64, u64) {
        let cache = self
            .cache
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        (cache.hits, cache.misses)
    }
}

/// The tokenizer gave up: PostgreSQL's parser cuts the text, and no constant is lifted.
fn prepare_unshaped(
    catalog: &Catalog,
    text: &str,
    part: u16,
    settings: &SessionSettings,
    parameter_types: &[TypeOid],
) -> Prepared {
    let whole = Shape {
        text: text.to_owned(),
        end: text.len(),
        ..Shape::default()
    };
    if !settings.standard_strings && text.contains('\\') {
        const REASON: &str = "backslashes_in_strings";
        let mut planned = bare(&whole, Kind::Unmodelled(REASON.to_owned()));
        planned.reasons.push(REASON.to_owned());
        planned.may_write = true;
        planned.touches = Touches::everything();
        return Prepared {
            planned: Arc::new(planned),
            literals: Arc::from([]),
        };
    }
    let planned = match pg_query::split_with_parser(text) {
        Ok(parts) => match parts.get(part as usize) {
            Some(statement) => {
                let shape = Shape {
                    text: (*statement).trim().to_owned(),
                    end: statement.len(),
                    ..Shape::default()
                };
                analyze::statement(catalog, statement, &shape, settings, parameter_types).0
            }
            None => bare(&whole, Kind::Empty),
        },
        Err(_) => {
            let mut planned = bare(&whole, Kind::Unmodelled("syntax".to_owned()));
            planned.reasons.push("syntax".to_owned());
            planned.touches.writes_everything = false;
            planned
        }
    };
    Prepared {
        planned: Arc::new(planned),
        literals: Arc::from([]),
    }
}

/// A plan that says nothing but its kind.
pub(super) fn bare(shape: &Shape, kind: Kind) -> Planned {
    Planned {
        shape: Arc::from(shape.text.as_str()),
        kind,
        parameter_types: Vec::new(),
        binds: Vec::new(),
        constants: Vec::new(),
        columns: Arc::from([]),
        may_write: false,
        heeds_role: false,
        reads_snapshot: false,
        touches: Touches::default(),
        reasons: Vec::new(),
        tag: "",
        volatile: false,
        columns_read: None,
        asks: Arc::new(Asks::everything()),
        many_relations: false,
        looks_once: false,
        sets: Arc::from([]),
    }
}

fn literal_value(literal: &Literal) -> Value {
    let text = literal.text.as_str();
    match literal.class {
        Class::Int4 => text.parse().map_or(Value::Unknown, Value::Int4),
        Class::Int8 => text.parse().map_or(Value::Unknown, Value::Int8),
        Class::Numeric => {
            value::parse(text, oid::NUMERIC, -1, &Context::defaults()).unwrap_or(Value::Unknown)
        }
        Class::String => Value::Text(Arc::from(text)),
    }
}

impl Planned {
    /// The plan of an empty statement.
    pub fn empty() -> Planned {
        bare(&Shape::default(), Kind::Empty)
    }

    /// Reads the client's parameters as the types that the plan found for them.
    pub fn decode_parameters(&self, parameters: &[Parameter], context: &Context) -> Vec<Value> {
        let types = self.parameter_types.iter().copied().chain(std::iter::repeat(0));
        parameters
            .iter()
            .zip(types)
            .map(|(parameter, inferred)| {
                let type_oid = if parameter.type_oid != 0 {
                    parameter.type_oid
                } else {
                    inferred
                };
                match (&parameter.value, type_oid) {
                    (None, _) => Value::Null,
                    (Some(_), 0) => Value::Unknown,
                    (Some(bytes), _) => {
                        value::decode(type_oid, parameter.format, Some(bytes.as_ref()), context)
                    }
                }
            })
            .collect()
    }

    /// Computes the slots that constants and parameters fill. An error is one that the server raises, too.
    pub fn bind(
        &self,
        parameters: &[Value],
        literals: &[Value],
        context: &Context,
    ) -> Result<Vec<Value>, SqlError> {
        self.binds
            .iter()
            .map(|bind| bind.value(parameters, literals, context))
            .collect()
    }
}

impl Bind {
    fn value(&self, parameters: &[Value], literals: &[Value], context: &Context) -> Result<Value, SqlError> {
        let source = match self.source {
            Source::Parameter(number) => parameters.get(number),
            Source::Literal(number) => literals.get(number),
        };
        let mut value = source.cloned().unwrap_or(Value::Unknown);
        if self.negate {
            value = match value {
                Value::Int4(number) => Value::Int4(-number),
                other => other,
            };
        }
        for step in &self.casts {
            value = match value {
                Value::Unknown => Value::Unknown,
                known => {
                    match value::cast(&known, step.from, step.to, step.type_modifier, step.kind, context) {
                        Err(SqlError::NotModelled(_)) => Value::Unknown,
                        other => other?,
                    }
                }
            };
        }
        Ok(value)
    }
}
