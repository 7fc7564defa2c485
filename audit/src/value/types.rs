//! What PostgreSQL knows of a type: its name, category, element, and what it can be cast to.
//!
//! In: type oids of built-in types, or of a user's types where they were given. Out: the facts that the
//! rules of expression typing ask for. An oid that is not known has no category and no casts.

use super::catalog::{CATALOG, TypeRow};
use super::context::{UserKind, UserTypes};
use super::{TypeOid, oid};

/// In which situation a cast is wanted; each later one allows all that the earlier ones do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CastKind {
    Implicit,
    Assignment,
    Explicit,
}

/// How a value gets from one type to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pathway {
    /// The same bytes.
    Relabel,
    /// By the function at this index of the catalog.
    Function(u16),
    /// By printing and reading.
    ThroughText,
    /// Element by element.
    Array,
}

/// Built-in types, and those of one database.
#[derive(Clone, Copy)]
pub struct Types<'a> {
    pub(super) user: Option<&'a UserTypes>,
}

impl<'a> Types<'a> {
    pub const BUILT_IN: Types<'static> = Types { user: None };

    pub fn with(user: &'a UserTypes) -> Types<'a> {
        Types {
            user: (!user.by_oid.is_empty()).then_some(user),
        }
    }

    fn row(self, type_oid: TypeOid) -> Option<&'static TypeRow> {
        CATALOG.types.get(&type_oid)
    }

    fn user_kind(self, type_oid: TypeOid) -> Option<&'a UserKind> {
        self.user
            .and_then(|user| user.by_oid.get(&type_oid))
            .map(|row| &row.kind)
    }

    /// pg_type.typcategory, and whether it is the preferred type of its category.
    pub fn category(self, type_oid: TypeOid) -> (u8, bool) {
        if let Some(row) = self.row(type_oid) {
            return (row.category, row.preferred);
        }
        match self.user_kind(type_oid) {
            Some(UserKind::Enum(_)) => (b'E', false),
            Some(UserKind::Array(_)) => (b'A', false),
            Some(UserKind::Domain(base, _)) => self.category(*base),
            _ => (b'U', false),
        }
    }

    /// The type below any domains.
    pub fn base(self, type_oid: TypeOid) -> TypeOid {
        match self.user_kind(type_oid) {
            Some(UserKind::Domain(base, _)) => self.base(*base),
            _ => type_oid,
        }
    }

    /// The element type of a true array type.
    pub fn element(self, type_oid: TypeOid) -> Option<TypeOid> {
        if let Some(row) = self.row(type_oid) {
            return (row.length == -1 && row.element != 0 && row.category == b'A').then_some(row.element);
        }
        match self.user_kind(type_oid) {
            Some(UserKind::Array(element)) => Some(*element),
            _ => None,
        }
    }

    /// The array type over a type.
    pub fn array_of(self, type_oid: TypeOid) -> Option<TypeOid> {
        let array = match self.row(type_oid) {
            Some(row) => row.array,
            None => self.user?.by_oid.get(&type_oid)?.array,
        };
        (array != 0).then_some(array)
    }

    pub fn is_enum(self, type_oid: TypeOid) -> bool {
        matches!(self.user_kind(self.base(type_oid)), Some(UserKind::Enum(_)))
    }

    pub fn is_range(self, type_oid: TypeOid) -> bool {
        self.row(type_oid).is_some_and(|row| row.kind == b'r')
    }

    pub fn is_multirange(self, type_oid: TypeOid) -> bool {
        self.row(type_oid).is_some_and(|row| row.kind == b'm')
    }

    /// The type's name as `format_type` prints it, without modifier.
    pub fn name(self, type_oid: TypeOid) -> String {
        let sql_name = match type_oid {
            oid::BOOL => "boolean",
            oid::INT2 => "smallint",
            oid::INT4 => "integer",
            oid::INT8 => "bigint",
            oid::FLOAT4 => "real",
            oid::FLOAT8 => "double precision",
            oid::VARCHAR => "character varying",
            oid::BPCHAR => "character",
            oid::CHAR => "\"char\"",
            oid::TIME => "time without time zone",
            oid::TIMETZ => "time with time zone",
            oid::TIMESTAMP => "timestamp without time zone",
            oid::TIMESTAMPTZ => "timestamp with time zone",
            oid::VARBIT => "bit varying",
            _ => "",
        };
        if !sql_name.is_empty() {
            return sql_name.to_owned();
        }
        if let Some(element) = self.element(type_oid) {
            return self.name(element) + "[]";
        }
        if let Some(row) = self.row(type_oid) {
            return row.name.to_owned();
        }
        match self.user.and_then(|user| user.by_oid.get(&type_oid)) {
            Some(row) => row.name.clone(),
            None => "???".to_owned(),
        }
    }

    /// find_coercion_pathway: how a value of `source` becomes one of `target`, if the situation allows it.
    pub fn pathway(self, source: TypeOid, target: TypeOid, kind: CastKind) -> Option<Pathway> {
        let (source, target) = (self.base(source), self.base(target));
        if source == target {
            return Some(Pathway::Relabel);
        }
        if let Some(row) = CATALOG.casts.get(&(source, target)) {
            let needed = match row.context {
                b'i' => CastKind::Implicit,
                b'a' => CastKind::Assignment,
                _ => CastKind::Explicit,
            };
            if kind < needed {
                return None;
            }
            return match row.method {
                b'b' => Some(Pathway::Relabel),
                b'f' => row.function.map(Pathway::Function),
                _ => Some(Pathway::ThroughText),
            };
        }
        if target != oid::OIDVECTOR
            && target != oid::INT2VECTOR
            && let (Some(from), Some(to)) = (self.element(source), self.element(target))
        {
            return match self.pathway(from, to, kind)? {
                Pathway::Relabel => Some(Pathway::Relabel),
                _ => Some(Pathway::Array),
            };
        }
        if kind >= CastKind::Assignment && self.category(target).0 == b'S' {
            return Some(Pathway::ThroughText);
        }
        if kind >= CastKind::Explicit && self.category(source).0 == b'S' {
            return Some(Pathway::ThroughText);
        }
        None
    }

    /// Whether `from` (possibly an unknown literal) can be used where a `to` is wanted.
    pub fn can_cast(self, from: TypeOid, to: TypeOid, kind: CastKind) -> bool {
        from == to || to == oid::ANY || from == oid::UNKNOWN || self.pathway(from, to, kind).is_some()
    }

    /// select_common_type: the type of UNION, CASE, VALUES, ARRAY[…], COALESCE, GREATEST.
    pub fn common_type(self, inputs: &[TypeOid]) -> Option<TypeOid> {
        let (&first, rest) = inputs.split_first()?;
        if first != oid::UNKNOWN && rest.iter().all(|&other| other == first) {
            return Some(first);
        }
        let mut chosen = self.base(first);
        let (mut category, mut preferred) = self.category(chosen);
        for &other in rest {
            let other = self.base(other);
            if other == oid::UNKNOWN || other == chosen {
                continue;
            }
            let (other_category, other_preferred) = self.category(other);
            if chosen == oid::UNKNOWN {
                (chosen, category, preferred) = (other, other_category, other_preferred);
            } else if other_category != category {
                return None;
            } else if !preferred
                && self.can_cast(chosen, other, CastKind::Implicit)
                && !self.can_cast(other, chosen, CastKind::Implicit)
            {
                (chosen, category, preferred) = (other, other_category, other_preferred);
            }
        }
        let chosen = if chosen == oid::UNKNOWN { oid::TEXT } else { chosen };
        inputs
            .iter()
            .all(|&input| self.can_cast(input, chosen, CastKind::Implicit))
            .then_some(chosen)
    }
}

/// The oid of a built-in type by its name in pg_type, or as SQL spells it.
pub fn type_by_name(name: &str) -> Option<TypeOid> {
    let internal = match name {
        "boolean" => "bool",
        "smallint" => "int2",
        "integer" | "int" => "int4",
        "bigint" => "int8",
        "real" => "float4",
        "double precision" => "float8",
        "decimal" => "numeric",
        "character varying" => "varchar",
        "character" => "bpchar",
        "timestamp without time zone" => "timestamp",
        "timestamp with time zone" => "timestamptz",
        "time without time zone" => "time",
        "time with time zone" => "timetz",
        "bit varying" => "varbit",
        other => other,
    };
    CATALOG.types_by_name.get(internal).copied()
}

pub fn can_cast(from: TypeOid, to: TypeOid, kind: CastKind) -> bool {
    Types::BUILT_IN.can_cast(from, to, kind)
}

pub fn common_type(inputs: &[TypeOid]) -> Option<TypeOid> {
    Types::BUILT_IN.common_type(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_types_follow_the_server() {
        assert_eq!(common_type(&[oid::INT4, oid::NUMERIC]), Some(oid::NUMERIC));
        assert_eq!(common_type(&[oid::UNKNOWN, oid::INT4]), Some(oid::INT4));
        assert_eq!(common_type(&[oid::UNKNOWN, oid::UNKNOWN]), Some(oid::TEXT));
        assert_eq!(common_type(&[oid::INT4, oid::TEXT]), None);
        assert_eq!(common_type(&[oid::VARCHAR, oid::TEXT]), Some(oid::VARCHAR));
        assert_eq!(
            common_type(&[oid::DATE, oid::TIMESTAMPTZ, oid::TIMESTAMP]),
            Some(oid::TIMESTAMPTZ)
        );
    }

    #[test]
    fn casts_follow_the_server() {
        assert!(can_cast(oid::INT4, oid::INT8, CastKind::Implicit));
        assert!(!can_cast(oid::INT8, oid::INT4, CastKind::Implicit));
        assert!(can_cast(oid::INT8, oid::INT4, CastKind::Assignment));
        assert!(!can_cast(oid::INT4, oid::TEXT, CastKind::Implicit));
        assert!(can_cast(oid::INT4, oid::TEXT, CastKind::Assignment));
        assert!(!can_cast(oid::TEXT, oid::INT4, CastKind::Assignment));
        assert!(can_cast(oid::TEXT, oid::INT4, CastKind::Explicit));
    }
}
