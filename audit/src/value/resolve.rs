//! Which operator or function an overloaded name means, by PostgreSQL's own rules.
//!
//! In: a name and the types of its arguments (an unknown literal is [`oid::UNKNOWN`]). Out: the one
//! function, and the types that its arguments must be cast to. `None` where the server would raise an
//! error, or where the name is not one of the built-in ones.
//!
//! The order of the steps is that of parse_oper.c, parse_func.c and parse_coerce.c.

use super::call::FunctionId;
use super::catalog::{CATALOG, FunctionRow};
use super::types::{CastKind, Pathway, Types};
use super::{TypeOid, oid};
use smallvec::SmallVec;

/// What a name was resolved to.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    pub function: FunctionId,
    /// Cast the inputs to these.
    pub arguments: Vec<TypeOid>,
    pub result: TypeOid,
    pub strict: bool,
    pub volatility: Volatility,
    /// Not a plain function: an aggregate, a window function, or one that returns a set.
    pub kind: FunctionKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Volatility {
    Immutable,
    Stable,
    Volatile,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    Plain,
    Set,
    Aggregate,
    Window,
}

/// One overload: its catalog index and its argument types, with VARIADIC spread out.
#[derive(Clone)]
struct Candidate {
    function: u16,
    arguments: SmallVec<[TypeOid; 4]>,
    result: TypeOid,
}

impl Types<'_> {
    /// An operator between `left` and `right`; `left` is `None` for a prefix operator, `Some(0)` or
    /// `Some(705)` for an unknown literal.
    pub fn resolve_operator(
        self,
        name: &str,
        left: Option<TypeOid>,
        right: Option<TypeOid>,
    ) -> Option<Resolved> {
        let name = if name == "!=" { "<>" } else { name };
        let literal = |t: TypeOid| if t == 0 { oid::UNKNOWN } else { t };
        let right = right.unwrap_or(oid::UNKNOWN);
        let inputs: SmallVec<[TypeOid; 4]> = left.into_iter().chain([right]).map(literal).collect();
        let all: Vec<Candidate> = CATALOG
            .operators_by_name
            .get(name)?
            .iter()
            .map(|&index| &CATALOG.operators[index as usize])
            .filter(|row| (row.left != 0) == left.is_some())
            .map(|row| Candidate {
                function: row.function,
                arguments: [row.left, row.right].into_iter().filter(|&t| t != 0).collect(),
                result: row.result,
            })
            .collect();
        let exact = |arguments: &[TypeOid]| all.iter().find(|c| c.arguments[..] == *arguments);
        let chosen = match inputs[..] {
            [left, right] => {
                let (l, r, guessed) = match (left, right) {
                    (oid::UNKNOWN, r) => (r, r, true),
                    (l, oid::UNKNOWN) => (l, l, true),
                    (l, r) => (l, r, false),
                };
                let base = self.base(l);
                exact(&[l, r]).or_else(|| {
                    if guessed && base != l {
                        exact(&[base, base])
                    } else {
                        None
                    }
                })
            }
            _ => exact(&inputs),
        };
        let chosen = match chosen {
            Some(found) => found.clone(),
            None => self.choose(&inputs, all)?,
        };
        self.resolved(chosen, &inputs)
    }

    /// A function by name; never an operator.
    pub fn resolve_function(self, name: &str, inputs: &[TypeOid]) -> Option<Resolved> {
        let all: Vec<Candidate> = CATALOG
            .functions_by_name
            .get(name)?
            .iter()
            .filter_map(|&index| spread(index, &CATALOG.functions[index as usize], inputs.len()))
            .collect();
        let chosen = match all.iter().find(|c| c.arguments[..] == *inputs) {
            Some(exact) => exact.clone(),
            None if self.function_is_cast(name, inputs).is_some() => return None,
            None => self.choose(inputs, all)?,
        };
        self.resolved(chosen, inputs)
    }

    /// `date('…')`, `text(x)`: a call of one argument by the name of a type is an explicit cast to it,
    /// unless a function takes exactly that argument.
    pub fn function_is_cast(self, name: &str, inputs: &[TypeOid]) -> Option<TypeOid> {
        let &[input] = inputs else { return None };
        let exact = |index: &u16| CATALOG.functions[*index as usize].arguments[..] == [input];
        if CATALOG
            .functions_by_name
            .get(name)
            .is_some_and(|rows| rows.iter().any(exact))
        {
            return None;
        }
        let target = *CATALOG.types_by_name.get(name)?;
        let cast = input == oid::UNKNOWN
            || matches!(
                self.pathway(input, target, CastKind::Explicit),
                Some(Pathway::Relabel | Pathway::ThroughText)
            );
        cast.then_some(target)
    }

    /// func_match_argtypes, then func_select_candidate.
    fn choose(self, inputs: &[TypeOid], all: Vec<Candidate>) -> Option<Candidate> {
        let mut left: Vec<Candidate> = all
            .into_iter()
            .filter(|c| self.can_coerce(inputs, &c.arguments))
            .collect();
        match left.len() {
            0 => return None,
            1 => return left.pop(),
            _ => {}
        }
        let bases: SmallVec<[TypeOid; 4]> = inputs.iter().map(|&input| self.base(input)).collect();
        let unknowns = bases.iter().filter(|&&base| base == oid::UNKNOWN).count();

        left = keep_best(left, |c| {
            bases
                .iter()
                .zip(&c.arguments)
                .filter(|(base, arg)| **base != oid::UNKNOWN && base == arg)
                .count()
        });
        if left.len() == 1 {
            return left.pop();
        }

        left = keep_best(left, |c| {
            let fits = |(base, arg): &(&TypeOid, &TypeOid)| {
                **base != oid::UNKNOWN
                    && (base == arg || self.category(**arg) == (self.category(**base).0, true))
            };
            bases.iter().zip(&c.arguments).filter(fits).count()
        });
        if left.len() == 1 {
            return left.pop();
        }
        if unknowns == 0 {
            return None;
        }

        if let Some(slots) = self.categories_for_unknowns(&bases, &left) {
            let keep = |c: &Candidate| {
                slots.iter().zip(&c.arguments).all(|(slot, &arg)| match *slot {
                    None => true,
                    Some((category, has_preferred)) => {
                        let (arg_category, preferred) = self.category(arg);
                        arg_category == category && (!has_preferred || preferred)
                    }
                })
            };
            let kept: Vec<Candidate> = left.iter().filter(|c| keep(c)).cloned().collect();
            if !kept.is_empty() {
                left = kept;
            }
            if left.len() == 1 {
                return left.pop();
            }
        }

        // The last resort: suppose that the literals have the one type that the known inputs have.
        let mut known = bases.iter().copied().filter(|&base| base != oid::UNKNOWN);
        let first = known.next()?;
        if known.any(|other| other != first) {
            return None;
        }
        let supposed: SmallVec<[TypeOid; 4]> = bases.iter().map(|_| first).collect();
        let mut fitting = left
            .into_iter()
            .filter(|c| self.can_coerce(&supposed, &c.arguments));
        let only = fitting.next()?;
        fitting.next().is_none().then_some(only)
    }

    /// For each unknown input the category to prefer, or `None` for the whole if the candidates conflict.
    fn categories_for_unknowns(
        self,
        bases: &[TypeOid],
        left: &[Candidate],
    ) -> Option<Vec<Option<(u8, bool)>>> {
        let mut slots = Vec::with_capacity(bases.len());
        for (position, &base) in bases.iter().enumerate() {
            if base != oid::UNKNOWN {
                slots.push(None);
                continue;
            }
            let mut slot: Option<(u8, bool)> = None;
            let mut conflict = false;
            for candidate in left {
                let (category, preferred) = self.category(candidate.arguments[position]);
                match &mut slot {
                    None => slot = Some((category, preferred)),
                    Some((chosen, any)) if *chosen == category => *any |= preferred,
                    Some(chosen) if category == b'S' => *chosen = (category, preferred),
                    Some(_) => conflict = true,
                }
            }
            if conflict && slot.is_some_and(|(category, _)| category != b'S') {
                return None;
            }
            slots.push(slot);
        }
        Some(slots)
    }

    /// can_coerce_type over all arguments, implicitly.
    fn can_coerce(self, inputs: &[TypeOid], declared: &[TypeOid]) -> bool {
        let mut generic = false;
        for (&input, &target) in inputs.iter().zip(declared) {
            if is_polymorphic(target) {
                generic = true;
            } else if !self.can_cast(input, target, CastKind::Implicit) {
                return false;
            }
        }
        !generic || self.bind_polymorphic(inputs, declared).is_some()
    }

    /// check_generic_type_consistency: what anyelement and its family stand for.
    fn bind_polymorphic(self, inputs: &[TypeOid], declared: &[TypeOid]) -> Option<Binding> {
        let mut binding = Binding::default();
        let mut array: Option<TypeOid> = None;
        let mut compatible: SmallVec<[TypeOid; 4]> = SmallVec::new();
        let (mut nonarray, mut enumeration, mut compatible_nonarray, mut compatible_seen) =
            (false, false, false, false);
        for (&input, &target) in inputs.iter().zip(declared) {
            let known = input != oid::UNKNOWN;
            match target {
                oid::ANYELEMENT | oid::ANYNONARRAY | oid::ANYENUM => {
                    nonarray |= target == oid::ANYNONARRAY;
                    enumeration |= target == oid::ANYENUM;
                    if known {
                        if binding.element.is_some_and(|element| element != input) {
                            return None;
                        }
                        binding.element = Some(input);
                    }
                }
                oid::ANYARRAY if known => {
                    let input = self.base(input);
                    if array.is_some_and(|array| array != input) {
                        return None;
                    }
                    array = Some(input);
                }
                oid::ANYCOMPATIBLE | oid::ANYCOMPATIBLENONARRAY => {
                    compatible_seen = true;
                    compatible_nonarray |= target == oid::ANYCOMPATIBLENONARRAY;
                    if known {
                        compatible.push(input);
                    }
                }
                oid::ANYCOMPATIBLEARRAY => {
                    compatible_seen = true;
                    if known {
                        compatible.push(self.element(self.base(input))?);
                    }
                }
                oid::ANYRANGE if known && !self.is_range(self.base(input)) => return None,
                oid::ANYMULTIRANGE if known && !self.is_multirange(self.base(input)) => return None,
                // Ranges over anything are not modelled; what they bind to is left open.
                oid::ANYRANGE | oid::ANYMULTIRANGE if known => binding.range = Some(self.base(input)),
                oid::ANYCOMPATIBLERANGE | oid::ANYCOMPATIBLEMULTIRANGE => return None,
                _ => {}
            }
        }
        if let Some(array) = array {
            let element = self.element(array)?;
            if binding.element.is_some_and(|other| other != element) {
                return None;
            }
            binding.element = Some(element);
        }
        let is_array = |t: Option<TypeOid>| t.is_some_and(|t| self.element(self.base(t)).is_some());
        if nonarray && is_array(binding.element) {
            return None;
        }
        if enumeration && !binding.element.is_some_and(|element| self.is_enum(element)) {
            return None;
        }
        if compatible_seen {
            binding.compatible = Some(match compatible.is_empty() {
                true => oid::TEXT,
                false => self.common_type(&compatible)?,
            });
            if compatible_nonarray && is_array(binding.compatible) {
                return None;
            }
        }
        Some(binding)
    }

    /// enforce_generic_type_consistency: the types to cast to, and the type of the result.
    fn resolved(self, chosen: Candidate, inputs: &[TypeOid]) -> Option<Resolved> {
        let row = &CATALOG.functions[chosen.function as usize];
        let generic = chosen.arguments.iter().any(|&t| is_polymorphic(t));
        let binding = match generic {
            true => self.bind_polymorphic(inputs, &chosen.arguments)?,
            false => Binding::default(),
        };
        let actual = |declared: TypeOid, input: TypeOid| -> Option<TypeOid> {
            Some(match declared {
                oid::ANYELEMENT | oid::ANYNONARRAY | oid::ANYENUM => binding.element?,
                oid::ANYARRAY => self.array_of(binding.element?)?,
                oid::ANYCOMPATIBLE | oid::ANYCOMPATIBLENONARRAY => binding.compatible?,
                oid::ANYCOMPATIBLEARRAY => self.array_of(binding.compatible?)?,
                oid::ANYRANGE | oid::ANYMULTIRANGE => binding.range?,
                // "any" takes what comes; a bare literal arrives there as text.
                oid::ANY if input == oid::UNKNOWN => oid::TEXT,
                oid::ANY => input,
                plain => plain,
            })
        };
        let arguments: Option<Vec<TypeOid>> = chosen
            .arguments
            .iter()
            .zip(inputs)
            .map(|(&declared, &input)| actual(declared, input))
            .collect();
        Some(Resolved {
            function: FunctionId::new(chosen.function),
            arguments: arguments?,
            result: actual(chosen.result, chosen.result)?,
            strict: row.strict,
            volatility: match row.volatility {
                b'i' => Volatility::Immutable,
                b's' => Volatility::Stable,
                _ => Volatility::Volatile,
            },
            kind: match row.kind {
                b'a' => FunctionKind::Aggregate,
                b'w' => FunctionKind::Window,
                _ if row.returns_set => FunctionKind::Set,
                _ => FunctionKind::Plain,
            },
        })
    }
}

#[derive(Default)]
struct Binding {
    element: Option<TypeOid>,
    compatible: Option<TypeOid>,
    range: Option<TypeOid>,
}

fn is_polymorphic(type_oid: TypeOid) -> bool {
    matches!(
        type_oid,
        oid::ANYELEMENT
            | oid::ANYARRAY
            | oid::ANYNONARRAY
            | oid::ANYENUM
            | oid::ANYRANGE
            | oid::ANYMULTIRANGE
            | oid::ANYCOMPATIBLE
            | oid::ANYCOMPATIBLEARRAY
            | oid::ANYCOMPATIBLENONARRAY
            | oid::ANYCOMPATIBLERANGE
            | oid::ANYCOMPATIBLEMULTIRANGE
    )
}

/// The overload as a candidate for `count` arguments, if it can take that many.
fn spread(index: u16, row: &FunctionRow, count: usize) -> Option<Candidate> {
    let declared = row.arguments.len();
    let mut arguments: SmallVec<[TypeOid; 4]> = row.arguments.iter().copied().collect();
    if row.variadic != 0 {
        if count < declared {
            return None;
        }
        arguments.pop();
        arguments.resize(count, row.variadic);
    } else if count > declared || count + (row.defaults as usize) < declared {
        return None;
    } else {
        arguments.truncate(count);
    }
    Some(Candidate {
        function: index,
        arguments,
        result: row.result,
    })
}

/// Keeps the candidates with the highest score, in order.
fn keep_best(candidates: Vec<Candidate>, score: impl Fn(&Candidate) -> usize) -> Vec<Candidate> {
    let best = candidates.iter().map(&score).max().unwrap_or(0);
    candidates.into_iter().filter(|c| score(c) == best).collect()
}

/// [`Types::resolve_operator`] over the built-in types.
pub fn resolve_operator(name: &str, left: Option<TypeOid>, right: Option<TypeOid>) -> Option<Resolved> {
    Types::BUILT_IN.resolve_operator(name, left, right)
}

/// [`Types::resolve_function`] over the built-in types.
pub fn resolve_function(name: &str, arguments: &[TypeOid]) -> Option<Resolved> {
    Types::BUILT_IN.resolve_function(name, arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operator(name: &str, left: TypeOid, right: TypeOid) -> Option<(Vec<TypeOid>, TypeOid)> {
        resolve_operator(name, Some(left), Some(right)).map(|r| (r.arguments, r.result))
    }

    #[test]
    fn operators_resolve_as_the_server_does() {
        use oid::*;
        assert_eq!(operator("+", INT4, INT4), Some((vec![INT4, INT4], INT4)));
        assert_eq!(
            operator("+", INT4, NUMERIC),
            Some((vec![NUMERIC, NUMERIC], NUMERIC))
        );
        assert_eq!(operator("+", INT4, UNKNOWN), Some((vec![INT4, INT4], INT4)));
        assert_eq!(operator("=", VARCHAR, UNKNOWN), Some((vec![TEXT, TEXT], BOOL)));
        assert_eq!(operator("=", UNKNOWN, UNKNOWN), Some((vec![TEXT, TEXT], BOOL)));
        assert_eq!(
            operator("+", FLOAT4, NUMERIC),
            Some((vec![FLOAT4, FLOAT8], FLOAT8))
        );
        assert_eq!(
            operator("-", TIMESTAMP, UNKNOWN),
            Some((vec![TIMESTAMP, TIMESTAMP], INTERVAL))
        );
        assert_eq!(operator("+", DATE, INT4), Some((vec![DATE, INT4], DATE)));
        assert_eq!(operator("||", TEXT, INT4), Some((vec![TEXT, INT4], TEXT)));
        assert_eq!(
            operator("||", INT4_ARRAY, INT4),
            Some((vec![INT4_ARRAY, INT4], INT4_ARRAY))
        );
        assert_eq!(operator("=", INT4, TEXT), None);
        assert_eq!(operator("->>", JSONB, UNKNOWN), Some((vec![JSONB, TEXT], TEXT)));
        assert_eq!(
            operator("=", INT4_ARRAY, UNKNOWN),
            Some((vec![INT4_ARRAY, INT4_ARRAY], BOOL))
        );
    }

    #[test]
    fn types_of_a_database_take_part() {
        use crate::value::{UserKind, UserType, UserTypes};
        let (mood, moods, age) = (20_000, 20_001, 20_002);
        let mut user = UserTypes::default();
        let labels = vec!["sad".into(), "ok".into()];
        user.by_oid.insert(
            mood,
            UserType {
                name: "mood".into(),
                kind: UserKind::Enum(labels),
                array: moods,
            },
        );
        user.by_oid.insert(
            moods,
            UserType {
                name: "_mood".into(),
                kind: UserKind::Array(mood),
                array: 0,
            },
        );
        user.by_oid.insert(
            age,
            UserType {
                name: "age".into(),
                kind: UserKind::Domain(oid::INT4, -1),
                array: 0,
            },
        );
        let types = Types::with(&user);
        let less = types
            .resolve_operator("<", Some(mood), Some(oid::UNKNOWN))
            .unwrap();
        assert_eq!((less.arguments, less.result), (vec![mood, mood], oid::BOOL));
        let plus = types
            .resolve_operator("+", Some(age), Some(oid::UNKNOWN))
            .unwrap();
        assert_eq!(
            (plus.arguments, plus.result),
            (vec![oid::INT4, oid::INT4], oid::INT4)
        );
        let listed = types.resolve_aggregate("array_agg", &[mood]).unwrap();
        assert_eq!(listed.result, moods);
        assert!(types.resolve_operator("<", Some(mood), Some(oid::TEXT)).is_none());
    }

    #[test]
    fn functions_resolve_as_the_server_does() {
        use oid::*;
        let function =
            |name: &str, args: &[TypeOid]| resolve_function(name, args).map(|r| (r.arguments, r.result));
        assert_eq!(function("abs", &[INT4]), Some((vec![INT4], INT4)));
        assert_eq!(function("round", &[INT4]), Some((vec![FLOAT8], FLOAT8)));
        assert_eq!(
            function("round", &[NUMERIC, INT4]),
            Some((vec![NUMERIC, INT4], NUMERIC))
        );
        assert_eq!(function("length", &[UNKNOWN]), Some((vec![TEXT], INT4)));
        assert_eq!(
            function("concat", &[UNKNOWN, INT4]),
            Some((vec![TEXT, INT4], TEXT))
        );
        assert_eq!(function("sum", &[INT4]), Some((vec![INT4], INT8)));
        assert_eq!(function("nosuch", &[]), None);
    }
}
