//! The options of a utility statement: `(name value, …)`.

use super::string_of;
use pg_query::protobuf as pg;
use pg_query::{Node, NodeEnum};

/// The name of an option, for utility statements.
pub(super) fn option_name(node: &Node) -> Option<(&str, Option<&Node>)> {
    match &node.node {
        Some(NodeEnum::DefElem(element)) => Some((&element.defname, element.arg.as_deref())),
        _ => None,
    }
}

/// The plain text of an option's value.
pub(super) fn option_text(node: Option<&Node>) -> Option<String> {
    match node.and_then(|node| node.node.as_ref())? {
        NodeEnum::String(string) => Some(string.sval.clone()),
        NodeEnum::Integer(integer) => Some(integer.ival.to_string()),
        NodeEnum::Float(float) => Some(float.fval.clone()),
        NodeEnum::Boolean(boolean) => Some(boolean.boolval.to_string()),
        NodeEnum::AConst(constant) => match constant.val.as_ref()? {
            pg::a_const::Val::Ival(integer) => Some(integer.ival.to_string()),
            pg::a_const::Val::Sval(string) => Some(string.sval.clone()),
            pg::a_const::Val::Fval(float) => Some(float.fval.clone()),
            pg::a_const::Val::Boolval(boolean) => Some(boolean.boolval.to_string()),
            pg::a_const::Val::Bsval(_) => None,
        },
        NodeEnum::TypeName(name) => name.names.last().and_then(string_of).map(str::to_owned),
        _ => None,
    }
}
