//! Plans by shape: a statement is parsed and analysed once for all its constants.
//!
//! In: text, catalog, settings and parameter types. Out: [`Prepared`]: the plan and this text's constants.
//!
//! Always true: a plan found in the cache is the plan that would have been made.

use super::analyze;
use super::plan::{Bind, Kind, Planned, Source, Touches};
use super::token::{self, Class, Literal, Shape};
use crate::state::Catalog;
use crate::trace::Parameter;
use crate::value::{self, Context, SqlError, TypeOid, Value, oid};
use rustc_hash::FxHashMap;
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
    plans: FxHashMap<PlanKey, Vec<(Pins, Arc<Planned>)>>,
    texts: FxHashMap<TextKey, Prepared>,
    hits: u64,
    misses: u64,
}

/// Constants that a plan depends on: index and text.
type Pins = Vec<(usize, String)>;

#[derive(Clone, PartialEq, Eq, Hash)]
struct PlanKey {
    catalog: u64,
    shape: String,
    classes: String,
    search_path: Vec<String>,
    parameter_types: Vec<TypeOid>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct TextKey {
    catalog: u64,
    text: Arc<str>,
    part: u16,
    search_path: Vec<String>,
    parameter_types: Vec<TypeOid>,
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
        let text_key = TextKey {
            catalog: catalog.version(),
            text: text.clone(),
            part,
            search_path: settings.search_path.clone(),
            parameter_types: parameter_types.to_vec(),
        };
        if let Some(prepared) = cache.texts.get(&text_key).cloned() {
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
        let plan_key = PlanKey {
            catalog: catalog.version(),
            shape: shape.text.clone(),
            classes: shape.classes.clone(),
            search_path: text_key.search_path.clone(),
            parameter_types: text_key.parameter_types.clone(),
        };
        let fits = |pins: &Pins| {
            pins.iter()
                .all(|(index, text)| shape.literals[*index].text == *text)
        };
        let found = cache
            .plans
            .get(&plan_key)
            .and_then(|entries| entries.iter().find(|(pins, _)| fits(pins)));
        let prepared = match found.map(|(_, planned)| planned.clone()) {
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
                let entries = cache.plans.entry(plan_key).or_default();
                // A plan that looks at its constants is as good as uncached once there are many of them.
                if entries.len() < 64 {
                    let pinned = pins
                        .into_iter()
                        .map(|index| (index, shape.literals[index].text.clone()))
                        .collect();
                    entries.push((pinned, planned.clone()));
                }
                Prepared { planned, literals }
            }
        };
        // Texts that will come again: prepared statements and those without constants.
        if prepared.literals.is_empty() || !prepared.planned.parameter_types.is_empty() {
            if cache.texts.len() >= TEXTS_MAX {
                cache.texts.clear();
            }
            cache.texts.insert(text_key, prepared.clone());
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
        reads_snapshot: false,
        touches: Touches::default(),
        reasons: Vec::new(),
        tag: "",
        volatile: false,
        many_relations: false,
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
