//! Which statements begin, end or shape transactions.
//!
//! In: the text of a Query or prepared statement. Out: a [`Control`] per statement in it.
//!
//! Nearly all traffic is data statements, told by their first word without parsing; only what may be
//! transaction control, or may hold several statements, goes to PostgreSQL's own grammar. Answers are
//! remembered by text.

use crate::sql::config;
use pg_query::NodeEnum;
use pg_query::protobuf::{TransactionStmtKind, VariableSetKind, a_const};
use pgassay_rules::Level;
use rustc_hash::FxHashMap;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Not transaction control.
    Data,
    Begin(Modes),
    Commit {
        chain: bool,
    },
    Rollback {
        chain: bool,
    },
    Savepoint(String),
    RollbackTo(String),
    Release(String),
    PrepareTransaction(String),
    CommitPrepared(String),
    RollbackPrepared(String),
    /// SET TRANSACTION, or SET transaction_isolation.
    SetTransaction(Modes),
    /// SET TRANSACTION SNAPSHOT.
    TakeSnapshot,
    /// SET SESSION CHARACTERISTICS, or SET default_transaction_….
    SetDefault(Modes),
    /// RESET default_transaction_….
    ResetDefault,
    ResetAll,
    DiscardAll,
}

/// What BEGIN and its kin say about a transaction; `None` is not said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    pub level: Option<Level>,
    pub read_only: Option<bool>,
    pub deferrable: Option<bool>,
}

const REMEMBERED_MAX: usize = 4_096;

#[derive(Clone, Default)]
pub struct Classifier {
    remembered: FxHashMap<Arc<str>, Arc<[Control]>>,
    /// Whether a text that calls set_config may set a level by it.
    setting: FxHashMap<Arc<str>, bool>,
}

impl Classifier {
    /// The control meaning of statement number `part` of `text`.
    pub fn classify(&mut self, text: &Arc<str>, part: u16) -> Control {
        if !may_control(text) {
            return Control::Data;
        }
        if let Some(known) = self.remembered.get(text) {
            return known.get(part as usize).cloned().unwrap_or(Control::Data);
        }
        let controls: Arc<[Control]> = parse(text).into();
        let answer = controls.get(part as usize).cloned().unwrap_or(Control::Data);
        if self.remembered.len() >= REMEMBERED_MAX {
            self.remembered.clear();
        }
        self.remembered.insert(text.clone(), controls);
        answer
    }
}

impl Classifier {
    /// Whether a text may change the level of its session by a function.
    pub fn may_set_level(&mut self, text: &Arc<str>) -> bool {
        if !config::is_mentioned(text) {
            return false;
        }
        if let Some(known) = self.setting.get(text) {
            return *known;
        }
        let is_level = |name: &Option<String>| {
            name.as_deref()
                .is_none_or(|name| name.starts_with("default_transaction"))
        };
        let answer = match pg_query::parse(text, 0) {
            Ok(parsed) => config::calls(&parsed.protobuf)
                .iter()
                .any(|set| is_level(&set.name)),
            Err(_) => false,
        };
        if self.setting.len() >= REMEMBERED_MAX {
            self.setting.clear();
        }
        self.setting.insert(text.clone(), answer);
        answer
    }
}

const WORDS: [&str; 12] = [
    "begin",
    "start",
    "commit",
    "end",
    "rollback",
    "abort",
    "savepoint",
    "release",
    "prepare",
    "set",
    "reset",
    "discard",
];

/// Whether the text could hold anything but one data statement.
fn may_control(text: &str) -> bool {
    let trimmed = text.trim_start();
    let word_len = trimmed.bytes().take_while(|b| b.is_ascii_alphabetic()).count();
    let word = &trimmed[..word_len];
    if word_len == 0 || WORDS.iter().any(|w| w.eq_ignore_ascii_case(word)) {
        return true;
    }
    text.trim_end().trim_end_matches(';').contains(';')
}

fn parse(text: &str) -> Vec<Control> {
    match pg_query::parse(text, 0) {
        Ok(parsed) => parsed
            .protobuf
            .stmts
            .into_iter()
            .map(|raw| {
                raw.stmt
                    .and_then(|s| s.node)
                    .map_or(Control::Data, |node| control_of(&node))
            })
            .collect(),
        Err(_) => vec![Control::Data],
    }
}

fn control_of(node: &NodeEnum) -> Control {
    match node {
        NodeEnum::TransactionStmt(t) => {
            let modes = modes_of(&t.options);
            match t.kind() {
                TransactionStmtKind::TransStmtBegin | TransactionStmtKind::TransStmtStart => {
                    Control::Begin(modes)
                }
                TransactionStmtKind::TransStmtCommit => Control::Commit { chain: t.chain },
                TransactionStmtKind::TransStmtRollback => Control::Rollback { chain: t.chain },
                TransactionStmtKind::TransStmtSavepoint => Control::Savepoint(t.savepoint_name.clone()),
                TransactionStmtKind::TransStmtRelease => Control::Release(t.savepoint_name.clone()),
                TransactionStmtKind::TransStmtRollbackTo => Control::RollbackTo(t.savepoint_name.clone()),
                TransactionStmtKind::TransStmtPrepare => Control::PrepareTransaction(t.gid.clone()),
                TransactionStmtKind::TransStmtCommitPrepared => Control::CommitPrepared(t.gid.clone()),
                TransactionStmtKind::TransStmtRollbackPrepared => Control::RollbackPrepared(t.gid.clone()),
                TransactionStmtKind::Undefined => Control::Data,
            }
        }
        NodeEnum::VariableSetStmt(set) => match set.kind() {
            VariableSetKind::VarSetMulti if set.name == "TRANSACTION" => {
                Control::SetTransaction(modes_of(&set.args))
            }
            VariableSetKind::VarSetMulti if set.name == "TRANSACTION SNAPSHOT" => Control::TakeSnapshot,
            VariableSetKind::VarSetMulti if set.name == "SESSION CHARACTERISTICS" => {
                Control::SetDefault(modes_of(&set.args))
            }
            // What is set for one transaction is no default of the next one.
            _ if set.is_local && set.name.starts_with("default_transaction") => Control::Data,
            VariableSetKind::VarSetValue => set_value(&set.name, set.args.first()),
            VariableSetKind::VarReset | VariableSetKind::VarSetDefault
                if set.name.starts_with("default_transaction") =>
            {
                Control::ResetDefault
            }
            VariableSetKind::VarResetAll => Control::ResetAll,
            _ => Control::Data,
        },
        NodeEnum::DiscardStmt(d) if d.target() == pg_query::protobuf::DiscardMode::DiscardAll => {
            Control::DiscardAll
        }
        _ => Control::Data,
    }
}

fn set_value(name: &str, arg: Option<&pg_query::Node>) -> Control {
    let text = arg.and_then(const_text);
    let level = || text.as_deref().and_then(|t| t.parse::<Level>().ok());
    let flag = || {
        text.as_deref()
            .map(|t| matches!(t.to_ascii_lowercase().as_str(), "on" | "true" | "yes" | "1"))
    };
    match name {
        "transaction_isolation" => Control::SetTransaction(Modes {
            level: level(),
            ..Modes::default()
        }),
        "transaction_read_only" => Control::SetTransaction(Modes {
            read_only: flag(),
            ..Modes::default()
        }),
        "default_transaction_isolation" => Control::SetDefault(Modes {
            level: level(),
            ..Modes::default()
        }),
        "default_transaction_read_only" => Control::SetDefault(Modes {
            read_only: flag(),
            ..Modes::default()
        }),
        _ => Control::Data,
    }
}

fn modes_of(options: &[pg_query::Node]) -> Modes {
    let mut modes = Modes::default();
    for option in options {
        let Some(NodeEnum::DefElem(def)) = &option.node else {
            continue;
        };
        let text = def.arg.as_deref().and_then(const_text);
        let flag = text.as_deref().map(|t| t == "1" || t == "true");
        match def.defname.as_str() {
            "transaction_isolation" => modes.level = text.and_then(|t| t.parse().ok()),
            "transaction_read_only" => modes.read_only = flag,
            "transaction_deferrable" => modes.deferrable = flag,
            _ => {}
        }
    }
    modes
}

fn const_text(node: &pg_query::Node) -> Option<String> {
    match node.node.as_ref()? {
        NodeEnum::AConst(c) => match c.val.as_ref()? {
            a_const::Val::Sval(s) => Some(s.sval.clone()),
            a_const::Val::Ival(i) => Some(i.ival.to_string()),
            a_const::Val::Boolval(b) => Some(b.boolval.to_string()),
            _ => None,
        },
        NodeEnum::String(s) => Some(s.sval.clone()),
        NodeEnum::Integer(i) => Some(i.ival.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classify(text: &str, part: u16) -> Control {
        Classifier::default().classify(&Arc::from(text), part)
    }

    #[test]
    fn levels_are_read_from_every_spelling() {
        let serializable = Modes {
            level: Some(Level::Serializable),
            ..Modes::default()
        };
        assert_eq!(
            classify("begin isolation level serializable", 0),
            Control::Begin(serializable)
        );
        assert_eq!(
            classify("/* hi */ start transaction isolation level serializable", 0),
            Control::Begin(serializable)
        );
        assert_eq!(
            classify("set transaction isolation level serializable", 0),
            Control::SetTransaction(serializable)
        );
        assert_eq!(
            classify("set transaction_isolation to 'serializable'", 0),
            Control::SetTransaction(serializable)
        );
        assert_eq!(
            classify(
                "set session characteristics as transaction isolation level serializable",
                0
            ),
            Control::SetDefault(serializable)
        );
        assert_eq!(
            classify("set default_transaction_isolation = 'serializable'", 0),
            Control::SetDefault(serializable)
        );
        assert_eq!(
            classify("begin isolation level repeatable read, read only", 0),
            Control::Begin(Modes {
                level: Some(Level::RepeatableRead),
                read_only: Some(true),
                deferrable: None
            })
        );
    }

    #[test]
    fn parts_of_a_query_are_told_apart() {
        let text = "select 1; begin; update t set a = 1; commit";
        assert_eq!(classify(text, 0), Control::Data);
        assert_eq!(classify(text, 1), Control::Begin(Modes::default()));
        assert_eq!(classify(text, 3), Control::Commit { chain: false });
        assert_eq!(classify("select 1 from setter", 0), Control::Data);
    }
}
