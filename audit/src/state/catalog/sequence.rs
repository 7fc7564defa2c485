//! Sequences: where they start and how they go on. How far they are is not here, since that is not transactional.

use super::TableId;
use crate::value::oid;
use pg_query::protobuf as pg;
use pg_query::{Node, NodeEnum};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    pub start: i64,
    pub increment: i64,
    pub least: i64,
    pub greatest: i64,
    /// Values that a session takes at once: beyond one, nobody can tell who gets which.
    pub cache: i64,
    /// The table with which it goes.
    pub owner: Option<TableId>,
    /// How far it was when the catalog was read.
    pub last: Option<i64>,
}

impl Sequence {
    /// What `serial` and an identity column without options make.
    pub fn of_type(type_oid: u32) -> Sequence {
        Sequence {
            start: 1,
            increment: 1,
            least: 1,
            greatest: bounds(type_oid).1,
            cache: 1,
            owner: None,
            last: None,
        }
    }

    /// The options of CREATE SEQUENCE or of an identity column; `None` where one is not understood.
    pub fn with_options(type_oid: u32, options: &[Node]) -> Option<Sequence> {
        let mut type_oid = type_oid;
        let (mut start, mut increment, mut least, mut greatest, mut cache) = (None, 1, None, None, 1);
        for node in options {
            let Some(NodeEnum::DefElem(option)) = &node.node else {
                return None;
            };
            let number = option.arg.as_ref().and_then(|node| number_of(node));
            match (option.defname.as_str(), &option.arg, number) {
                ("start", _, Some(number)) => start = Some(number),
                ("increment", _, Some(number)) => increment = number,
                ("minvalue", _, Some(number)) => least = Some(number),
                ("maxvalue", _, Some(number)) => greatest = Some(number),
                ("cache", _, Some(number)) => cache = number,
                ("minvalue" | "maxvalue", None, _) => {}
                ("as", Some(node), _) => type_oid = type_of(node)?,
                ("owned_by" | "sequence_name" | "cycle", ..) => {}
                _ => return None,
            }
        }
        let (smallest, largest) = bounds(type_oid);
        let least = least.unwrap_or(if increment > 0 { 1 } else { smallest });
        let greatest = greatest.unwrap_or(if increment > 0 { largest } else { -1 });
        Some(Sequence {
            start: start.unwrap_or(if increment > 0 { least } else { greatest }),
            increment,
            least,
            greatest,
            cache,
            owner: None,
            last: None,
        })
    }

    /// The first value, if it can be told who gets it.
    pub fn first(&self) -> Option<i64> {
        (self.cache == 1).then_some(self.start)
    }

    /// The value after this one; `None` at the end, where it fails or starts anew.
    pub fn after(&self, value: i64) -> Option<i64> {
        let next = value.checked_add(self.increment)?;
        (self.cache == 1 && (self.least..=self.greatest).contains(&next)).then_some(next)
    }
}

fn bounds(type_oid: u32) -> (i64, i64) {
    match type_oid {
        oid::INT2 => (i16::MIN.into(), i16::MAX.into()),
        oid::INT4 => (i32::MIN.into(), i32::MAX.into()),
        _ => (i64::MIN, i64::MAX),
    }
}

fn number_of(node: &Node) -> Option<i64> {
    match node.node.as_ref()? {
        NodeEnum::Integer(number) => Some(number.ival.into()),
        NodeEnum::Float(number) => number.fval.parse().ok(),
        _ => None,
    }
}

fn type_of(node: &Node) -> Option<u32> {
    let Some(NodeEnum::TypeName(pg::TypeName { names, .. })) = &node.node else {
        return None;
    };
    let last = names.last().and_then(|node| match &node.node {
        Some(NodeEnum::String(string)) => Some(string.sval.as_str()),
        _ => None,
    });
    match last? {
        "int2" | "smallint" => Some(oid::INT2),
        "int4" | "int" | "integer" => Some(oid::INT4),
        "int8" | "bigint" => Some(oid::INT8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(sql: &str) -> Option<Sequence> {
        let parsed = pg_query::parse(sql, pg_query::ParserOptions::default()).expect("SQL");
        let node = parsed.protobuf.stmts[0]
            .stmt
            .as_ref()
            .and_then(|s| s.node.clone());
        match node {
            Some(NodeEnum::CreateSeqStmt(create)) => Sequence::with_options(oid::INT8, &create.options),
            _ => None,
        }
    }

    #[test]
    fn options_say_where_it_starts_and_ends() {
        let plain = made("create sequence s").expect("understood");
        assert_eq!((plain.first(), plain.after(1)), (Some(1), Some(2)));
        let down = made("create sequence s as int increment -2 start 7 minvalue 4").expect("understood");
        assert_eq!((down.first(), down.greatest), (Some(7), -1));
        let small = made("create sequence s as smallint maxvalue 2").expect("understood");
        assert_eq!((small.after(1), small.after(2)), (Some(2), None));
        let shared = made("create sequence s cache 20").expect("understood");
        assert_eq!((shared.first(), shared.after(1)), (None, None));
        assert_eq!(Sequence::of_type(oid::INT2).greatest, 32_767);
    }
}
