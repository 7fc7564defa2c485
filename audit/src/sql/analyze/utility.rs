//! Everything that is not a query: transaction control, settings, cursors, prepared statements, COPY, DDL.

use super::option::{option_name, option_text};
use super::{Analyzer, Level, Result, strings_of, unmodelled};
use crate::sql::plan::{CopyFormat, CopyFrom, CopyTo, Ddl, FetchDirection, Kind};
use crate::state::catalog::ANYWHERE;
use crate::state::{Catalog, TableId};
use crate::value::TypeOid;
use pg_query::protobuf::{self as pg, Token, TransactionStmtKind, VariableSetKind};
use pg_query::{Node, NodeEnum};
use pgassay_rules::Level as Isolation;
use std::sync::Arc;

/// CURSOR_OPT_HOLD of parsenodes.h.
const CURSOR_HOLD: i32 = 0x0020;

/// Whether the server takes a snapshot for it, although it is no query: as PlannedStmtRequiresSnapshot in pquery.c.
fn takes_snapshot(node: &NodeEnum) -> bool {
    !matches!(
        node,
        NodeEnum::TransactionStmt(_)
            | NodeEnum::LockStmt(_)
            | NodeEnum::VariableSetStmt(_)
            | NodeEnum::VariableShowStmt(_)
            | NodeEnum::ConstraintsSetStmt(_)
            | NodeEnum::FetchStmt(_)
            | NodeEnum::ListenStmt(_)
            | NodeEnum::NotifyStmt(_)
            | NodeEnum::UnlistenStmt(_)
            | NodeEnum::CheckPointStmt(_)
    )
}

/// The identifiers in a text, and key words that are the name of a table.
fn names_in(text: &str, catalog: &Catalog) -> Arc<[String]> {
    let Ok(scanned) = pg_query::scan(text) else {
        return Arc::from([]);
    };
    let names = scanned.tokens.iter().filter_map(|token| {
        let word = text
            .get(token.start as usize..token.end as usize)?
            .trim_matches('"');
        let is_name =
            token.token() == Token::Ident || catalog.find(None, word, &[ANYWHERE.to_owned()]).is_some();
        is_name.then(|| word.to_lowercase())
    });
    names.collect()
}

impl Analyzer<'_> {
    pub(super) fn utility(&mut self, node: NodeEnum) -> Result<Kind> {
        // Utility statements look at their constants.
        if !matches!(
            node,
            NodeEnum::ExecuteStmt(_) | NodeEnum::CallStmt(_) | NodeEnum::CopyStmt(_)
        ) {
            self.pin_all();
        }
        self.reads_snapshot = takes_snapshot(&node);
        match &node {
            NodeEnum::TransactionStmt(statement) => self.transaction(statement),
            NodeEnum::VariableSetStmt(statement) => self.variable_set(statement),
            NodeEnum::VariableShowStmt(statement) => {
                self.tag = "SHOW";
                Ok(Kind::Show(statement.name.clone()))
            }
            NodeEnum::DiscardStmt(statement) => {
                self.tag = "DISCARD";
                Ok(Kind::Discard {
                    all: statement.target == pg::DiscardMode::DiscardAll as i32,
                })
            }
            NodeEnum::PrepareStmt(statement) => {
                self.tag = "PREPARE";
                let mut types: Vec<TypeOid> = Vec::new();
                for node in &statement.argtypes {
                    let Some(NodeEnum::TypeName(name)) = &node.node else {
                        return unmodelled("prepare");
                    };
                    types.push(self.type_name(name)?.0);
                }
                let Some(text) = self.text_after_as() else {
                    return unmodelled("prepare");
                };
                Ok(Kind::Prepare {
                    name: statement.name.clone(),
                    types,
                    text: Arc::from(text),
                })
            }
            NodeEnum::ExecuteStmt(statement) => {
                self.levels.push(Level::default());
                let mut arguments = Vec::new();
                for node in &statement.params {
                    // Types are those of the prepared statement: literals stay text, which the caller casts.
                    let typed = self.expr_or_unknown(node);
                    arguments.push((typed.expr, typed.oid));
                }
                self.levels.pop();
                self.may_write = true;
                Ok(Kind::Execute {
                    name: statement.name.clone(),
                    arguments,
                })
            }
            NodeEnum::DeallocateStmt(statement) => {
                self.tag = "DEALLOCATE";
                Ok(Kind::Deallocate(
                    (!statement.isall).then(|| statement.name.clone()),
                ))
            }
            NodeEnum::DeclareCursorStmt(statement) => {
                self.tag = "DECLARE CURSOR";
                if let Some(query) = statement.query.as_ref().and_then(|query| query.node.as_ref()) {
                    self.raw_touches(query, false);
                }
                let hold = statement.options & CURSOR_HOLD != 0;
                let Some(text) = self.text_after_for() else {
                    return unmodelled("declare_cursor");
                };
                Ok(Kind::DeclareCursor {
                    name: statement.portalname.clone(),
                    hold,
                    query: Arc::from(text),
                })
            }
            NodeEnum::FetchStmt(statement) => {
                self.tag = if statement.ismove { "MOVE" } else { "FETCH" };
                let direction = match pg::FetchDirection::try_from(statement.direction) {
                    Ok(pg::FetchDirection::FetchBackward) => FetchDirection::Backward,
                    Ok(pg::FetchDirection::FetchAbsolute) => FetchDirection::Absolute,
                    Ok(pg::FetchDirection::FetchRelative) => FetchDirection::Relative,
                    _ => FetchDirection::Forward,
                };
                Ok(Kind::Fetch {
                    name: statement.portalname.clone(),
                    direction,
                    count: statement.how_many,
                    is_move: statement.ismove,
                })
            }
            NodeEnum::ClosePortalStmt(statement) => {
                self.tag = "CLOSE CURSOR";
                Ok(Kind::CloseCursor(
                    (!statement.portalname.is_empty()).then(|| statement.portalname.clone()),
                ))
            }
            NodeEnum::LockStmt(statement) => {
                self.tag = "LOCK TABLE";
                let tables = self.tables_of(&statement.relations);
                Ok(Kind::Lock {
                    tables,
                    mode: statement.mode,
                })
            }
            NodeEnum::TruncateStmt(statement) => {
                self.tag = "TRUNCATE TABLE";
                self.raw_touches(&node, true);
                let tables = self.tables_of(&statement.relations);
                if tables.len() != statement.relations.len() {
                    self.touches.writes_everything = true;
                    return unmodelled("unknown_table");
                }
                let cascade = statement.behavior == pg::DropBehavior::DropCascade as i32;
                let mut all = Vec::new();
                for table in tables {
                    let Some(found) = self.catalog.table(table).cloned() else {
                        continue;
                    };
                    if found.storage != found.id {
                        return unmodelled("truncate_partition");
                    }
                    if found.unmodelled_write.is_some() {
                        return unmodelled("trigger");
                    }
                    all.push(table);
                    for child in &found.children {
                        if self.catalog.storage(*child) != found.storage {
                            return unmodelled("inheritance");
                        }
                    }
                }
                if cascade {
                    let mut place = 0;
                    while place < all.len() {
                        let more = self
                            .catalog
                            .table(all[place])
                            .map(|table| table.referenced_by.clone())
                            .unwrap_or_default();
                        for table in more {
                            if !all.contains(&table) {
                                all.push(table);
                            }
                        }
                        place += 1;
                    }
                }
                self.touches.written.extend(all.iter().copied());
                self.touches.draws_everything |= statement.restart_seqs;
                Ok(Kind::Truncate {
                    tables: all,
                    restart: statement.restart_seqs,
                    cascade,
                })
            }
            NodeEnum::CopyStmt(statement) => {
                let statement = statement.clone();
                self.copy(&statement, &node)
            }
            NodeEnum::CallStmt(statement) => {
                self.tag = "CALL";
                self.may_write = true;
                match &statement.funccall {
                    Some(call) => {
                        let call = call.clone();
                        self.call(&call)
                    }
                    None => unmodelled("call"),
                }
            }
            NodeEnum::DoStmt(statement) => {
                self.tag = "DO";
                self.may_write = true;
                let statement = statement.clone();
                self.do_block(&statement)
            }
            NodeEnum::ExplainStmt(statement) => {
                let analyze = statement
                    .options
                    .iter()
                    .any(|node| option_name(node).is_some_and(|(name, _)| name == "analyze"));
                self.tag = "EXPLAIN";
                if analyze {
                    self.raw_touches(&node, false);
                    return unmodelled("explain_analyze");
                }
                Ok(Kind::Explain)
            }
            NodeEnum::ListenStmt(_) => self.harmless("LISTEN"),
            NodeEnum::UnlistenStmt(_) => self.harmless("UNLISTEN"),
            NodeEnum::NotifyStmt(_) => self.harmless("NOTIFY"),
            NodeEnum::VacuumStmt(_) => self.harmless("VACUUM"),
            NodeEnum::CheckPointStmt(_) => self.harmless("CHECKPOINT"),
            NodeEnum::CommentStmt(_) => self.harmless("COMMENT"),
            NodeEnum::GrantStmt(_) | NodeEnum::GrantRoleStmt(_) => self.harmless("GRANT"),
            NodeEnum::AlterDefaultPrivilegesStmt(_) => self.harmless("ALTER DEFAULT PRIVILEGES"),
            NodeEnum::CreateRoleStmt(_) => self.harmless("CREATE ROLE"),
            NodeEnum::AlterRoleStmt(_) => self.harmless("ALTER ROLE"),
            NodeEnum::DropRoleStmt(_) => self.harmless("DROP ROLE"),
            NodeEnum::ReindexStmt(_) => self.harmless("REINDEX"),
            NodeEnum::ClusterStmt(_) => self.harmless("CLUSTER"),
            NodeEnum::ConstraintsSetStmt(_) => self.harmless("SET CONSTRAINTS"),
            NodeEnum::CreateStmt(_)
            | NodeEnum::CreateTableAsStmt(_)
            | NodeEnum::DropStmt(_)
            | NodeEnum::AlterTableStmt(_)
            | NodeEnum::IndexStmt(_)
            | NodeEnum::ViewStmt(_)
            | NodeEnum::CreateSeqStmt(_)
            | NodeEnum::AlterSeqStmt(_)
            | NodeEnum::CreateEnumStmt(_)
            | NodeEnum::AlterEnumStmt(_)
            | NodeEnum::CreateSchemaStmt(_)
            | NodeEnum::CreateDomainStmt(_)
            | NodeEnum::CompositeTypeStmt(_)
            | NodeEnum::CreateFunctionStmt(_)
            | NodeEnum::RenameStmt(_)
            | NodeEnum::CreateTrigStmt(_)
            | NodeEnum::RuleStmt(_)
            | NodeEnum::CreatePolicyStmt(_)
            | NodeEnum::CreateExtensionStmt(_)
            | NodeEnum::RefreshMatViewStmt(_) => {
                let writes = !matches!(node, NodeEnum::CreateTableAsStmt(_));
                self.raw_touches(&node, writes);
                self.touches.writes_everything &= !writes;
                self.touches.draws_everything |= may_draw(&node);
                self.touch_event_triggers();
                self.may_write = true;
                let ddl = Ddl {
                    statement: node.clone(),
                    names_known: self.knows_tables(&node),
                    names: names_in(&self.text, self.catalog),
                    search_path: self.settings.search_path.clone(),
                    text: Arc::from(self.text.as_str()),
                };
                Ok(Kind::Ddl(Box::new(ddl)))
            }
            other => {
                self.raw_touches(other, true);
                self.touches.writes_everything = true;
                unmodelled(format!("statement_{}", statement_name(other)))
            }
        }
    }

    fn harmless(&mut self, tag: &'static str) -> Result<Kind> {
        self.tag = tag;
        if matches!(tag, "COMMENT" | "GRANT" | "REINDEX") {
            self.touch_event_triggers();
        }
        Ok(Kind::Harmless { tag })
    }

    fn transaction(&mut self, statement: &pg::TransactionStmt) -> Result<Kind> {
        let options = self.transaction_options(&statement.options);
        let name = statement.savepoint_name.clone();
        let (tag, kind) = match TransactionStmtKind::try_from(statement.kind) {
            Ok(TransactionStmtKind::TransStmtBegin) => (
                "BEGIN",
                Kind::Begin {
                    level: options.0,
                    read_only: options.1,
                    deferrable: options.2,
                },
            ),
            Ok(TransactionStmtKind::TransStmtStart) => (
                "START TRANSACTION",
                Kind::Begin {
                    level: options.0,
                    read_only: options.1,
                    deferrable: options.2,
                },
            ),
            Ok(TransactionStmtKind::TransStmtCommit) => (
                "COMMIT",
                Kind::Commit {
                    chain: statement.chain,
                },
            ),
            Ok(TransactionStmtKind::TransStmtRollback) => (
                "ROLLBACK",
                Kind::Rollback {
                    chain: statement.chain,
                },
            ),
            Ok(TransactionStmtKind::TransStmtSavepoint) => ("SAVEPOINT", Kind::Savepoint(name)),
            Ok(TransactionStmtKind::TransStmtRelease) => ("RELEASE", Kind::Release(name)),
            Ok(TransactionStmtKind::TransStmtRollbackTo) => ("ROLLBACK", Kind::RollbackTo(name)),
            Ok(TransactionStmtKind::TransStmtPrepare) => (
                "PREPARE TRANSACTION",
                Kind::PrepareTransaction(statement.gid.clone()),
            ),
            Ok(TransactionStmtKind::TransStmtCommitPrepared) => {
                ("COMMIT PREPARED", Kind::CommitPrepared(statement.gid.clone()))
            }
            Ok(TransactionStmtKind::TransStmtRollbackPrepared) => {
                ("ROLLBACK PREPARED", Kind::RollbackPrepared(statement.gid.clone()))
            }
            _ => return unmodelled("transaction_statement"),
        };
        self.tag = tag;
        Ok(kind)
    }

    fn transaction_options(&self, nodes: &[Node]) -> (Option<Isolation>, Option<bool>, Option<bool>) {
        let mut options = (None, None, None);
        for node in nodes {
            let Some((name, value)) = option_name(node) else {
                continue;
            };
            let value = option_text(value);
            let truth = value.as_deref().map(|value| value != "0" && value != "false");
            match name {
                "transaction_isolation" => options.0 = value.and_then(|value| value.parse().ok()),
                "transaction_read_only" => options.1 = truth,
                "transaction_deferrable" => options.2 = truth,
                _ => {}
            }
        }
        options
    }

    fn variable_set(&mut self, statement: &pg::VariableSetStmt) -> Result<Kind> {
        self.tag = "SET";
        let name = statement.name.to_ascii_lowercase();
        match VariableSetKind::try_from(statement.kind) {
            Ok(VariableSetKind::VarSetMulti) => {
                let (level, read_only, deferrable) = self.transaction_options(&statement.args);
                match name.as_str() {
                    "transaction" => Ok(Kind::SetTransaction {
                        level,
                        read_only,
                        deferrable,
                        snapshot: None,
                        session: false,
                    }),
                    "session characteristics" => Ok(Kind::SetTransaction {
                        level,
                        read_only,
                        deferrable,
                        snapshot: None,
                        session: true,
                    }),
                    "transaction snapshot" => {
                        let snapshot = statement.args.first().and_then(|node| option_text(Some(node)));
                        Ok(Kind::SetTransaction {
                            level: None,
                            read_only: None,
                            deferrable: None,
                            snapshot,
                            session: false,
                        })
                    }
                    _ => unmodelled("set"),
                }
            }
            Ok(VariableSetKind::VarSetValue) => {
                let values: Option<Vec<String>> = statement
                    .args
                    .iter()
                    .map(|node| match &node.node {
                        Some(NodeEnum::TypeCast(cast)) => option_text(cast.arg.as_deref()),
                        _ => option_text(Some(node)),
                    })
                    .collect();
                // Each value of a list of names is one name, exactly as it stands (flatten_set_variable_args).
                let quoted = |value: String| match name.as_str() {
                    "search_path" => format!("\"{}\"", value.replace('"', "\"\"")),
                    _ => value,
                };
                let values = values.map(|values| values.into_iter().map(quoted).collect::<Vec<_>>());
                let value = values.map(|values| values.join(", "));
                Ok(Kind::Set {
                    name,
                    value,
                    local: statement.is_local,
                })
            }
            Ok(VariableSetKind::VarSetDefault | VariableSetKind::VarSetCurrent) => Ok(Kind::Set {
                name,
                value: None,
                local: statement.is_local,
            }),
            Ok(VariableSetKind::VarReset) => {
                self.tag = "RESET";
                Ok(Kind::Reset(Some(name)))
            }
            Ok(VariableSetKind::VarResetAll) => {
                self.tag = "RESET";
                Ok(Kind::Reset(None))
            }
            _ => unmodelled("set"),
        }
    }

    fn tables_of(&mut self, nodes: &[Node]) -> Vec<TableId> {
        let mut tables = Vec::new();
        for node in nodes {
            if let Some(NodeEnum::RangeVar(range)) = &node.node {
                if let Some(table) = self.find_table(range) {
                    tables.push(table.id);
                }
            }
        }
        tables
    }

    /// The text behind `PREPARE name [(types)] AS`.
    fn text_after_as(&self) -> Option<String> {
        let lower = self.text.to_ascii_lowercase();
        let mut from = 0;
        while let Some(place) = lower[from..].find("as") {
            let at = from + place;
            let before = lower[..at].chars().next_back();
            let after = lower[at + 2..].chars().next();
            if before.is_some_and(|c| c.is_whitespace() || c == ')') && after.is_some_and(char::is_whitespace)
            {
                return Some(self.text[at + 2..].trim().to_owned());
            }
            from = at + 2;
        }
        None
    }

    /// The text behind `DECLARE … CURSOR [WITH HOLD] FOR`.
    fn text_after_for(&self) -> Option<String> {
        let lower = self.text.to_ascii_lowercase();
        let cursor = lower.find("cursor")?;
        let mut from = cursor;
        while let Some(place) = lower[from..].find("for") {
            let at = from + place;
            let before = lower[..at].chars().next_back();
            let after = lower[at + 3..].chars().next();
            if before.is_some_and(char::is_whitespace) && after.is_some_and(|c| c.is_whitespace() || c == '(')
            {
                return Some(self.text[at + 3..].trim().to_owned());
            }
            from = at + 3;
        }
        None
    }

    fn copy(&mut self, statement: &pg::CopyStmt, node: &NodeEnum) -> Result<Kind> {
        self.tag = "COPY";
        self.pin_all();
        let format = copy_format(&statement.options, statement);
        if statement.is_from {
            self.may_write = true;
            self.raw_touches(node, true);
        } else {
            self.raw_touches(node, false);
        }
        if !format.modelled {
            return unmodelled("copy_format");
        }
        if !statement.is_from && !format.from_stdin {
            return unmodelled("copy_to_file");
        }
        let columns = strings_of(&statement.attlist);
        if !statement.is_from {
            let text = match (&statement.relation, &statement.query) {
                (Some(_), _) => {
                    let Some(table) = statement
                        .relation
                        .as_ref()
                        .and_then(|range| self.find_table(range))
                    else {
                        return unmodelled("unknown_table");
                    };
                    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
                    let list: Vec<String> = match columns.is_empty() {
                        true => table
                            .live_columns()
                            .filter(|(_, c)| !c.generated)
                            .map(|(_, column)| quoted(&column.name))
                            .collect(),
                        false => columns.iter().map(|name| quoted(name)).collect(),
                    };
                    format!(
                        "SELECT {} FROM ONLY {}.{}",
                        list.join(", "),
                        quoted(&table.schema),
                        quoted(&table.name)
                    )
                }
                (None, Some(query)) => match &query.node {
                    Some(NodeEnum::SelectStmt(select)) => {
                        let select = select.clone();
                        let query = self.query(&select, false)?;
                        return Ok(Kind::CopyTo(Box::new(CopyTo { query, format })));
                    }
                    _ => return unmodelled("copy_query"),
                },
                _ => return unmodelled("copy"),
            };
            let node = pg_query::parse(&text, pg_query::ParserOptions::default())
                .ok()
                .and_then(|parsed| parsed.protobuf.stmts.into_iter().next())
                .and_then(|raw| raw.stmt)
                .and_then(|node| node.node);
            let Some(NodeEnum::SelectStmt(select)) = node else {
                return unmodelled("copy");
            };
            let query = self.query(&select, false)?;
            return Ok(Kind::CopyTo(Box::new(CopyTo { query, format })));
        }
        let Some(table) = statement
            .relation
            .as_ref()
            .and_then(|range| self.find_table(range))
        else {
            self.touches.writes_everything = true;
            return unmodelled("unknown_table");
        };
        if let Some(reason) = table.unmodelled_write.clone().or(table.unmodelled_read.clone()) {
            return unmodelled(reason);
        }
        if !format.from_stdin {
            return unmodelled("copy_from_file");
        }
        let checks = self.table_checks(&table)?;
        let mut positions = Vec::new();
        if columns.is_empty() {
            positions = table
                .live_columns()
                .filter(|(_, c)| !c.generated)
                .map(|(position, _)| position)
                .collect();
        }
        for name in columns {
            match table.column(name) {
                Some(position) => positions.push(position),
                None => return unmodelled("unknown_column"),
            }
        }
        let mut defaults = Vec::new();
        for position in 0..table.columns.len() {
            if !positions.contains(&position) {
                self.is_orderly = true;
                let default = self.default_of(&table, position);
                defaults.push((position, default));
            }
        }
        let mut filter = Vec::new();
        if let Some(condition) = &statement.where_clause {
            let item = self.table_item(&table, &table.name, 0, &[]);
            self.levels.push(Level {
                items: vec![item],
                relation_count: 1,
                ..Level::default()
            });
            self.conditions(condition, &mut filter);
            self.levels.pop();
        }
        let plan = CopyFrom {
            table: table.id,
            columns: positions,
            format,
            defaults,
            filter,
            checks,
        };
        Ok(Kind::CopyFrom(Box::new(plan)))
    }
}

fn copy_format(options: &[Node], statement: &pg::CopyStmt) -> CopyFormat {
    let mut format = CopyFormat {
        modelled: !statement.is_program,
        from_stdin: statement.filename.is_empty() && !statement.is_program,
        ..CopyFormat::default()
    };
    let (mut delimiter, mut null, mut escape) = (None, None, None);
    let single = |text: &str| (text.len() == 1).then(|| text.as_bytes()[0]);
    for node in options {
        let Some((name, value)) = option_name(node) else {
            continue;
        };
        let value = option_text(value);
        match (name, value.as_deref()) {
            ("format", Some("text")) => {}
            ("format", Some("csv")) => format.csv = true,
            ("delimiter", Some(text)) => {
                delimiter = single(text);
                format.modelled &= delimiter.is_some();
            }
            ("quote", Some(text)) => match single(text) {
                Some(quote) => format.quote = quote,
                None => format.modelled = false,
            },
            ("escape", Some(text)) => {
                escape = single(text);
                format.modelled &= escape.is_some();
            }
            ("null", Some(text)) => null = Some(text.to_owned()),
            ("header", value) => {
                let no = ["false", "0", "off"];
                format.header = value.is_none_or(|value| !no.contains(&value.to_ascii_lowercase().as_str()));
            }
            ("encoding", Some(name)) => {
                format.modelled &= ["utf8", "utf-8"].contains(&name.to_ascii_lowercase().as_str());
            }
            ("freeze" | "force_quote", _) => {}
            _ => format.modelled = false,
        }
    }
    format.escape = escape.unwrap_or(format.quote);
    format.delimiter = delimiter.unwrap_or(if format.csv { b',' } else { b'\t' });
    let standard = if format.csv { "" } else { "\\N" };
    format.null = null.unwrap_or_else(|| standard.to_owned());
    format
}

/// Whether DDL may set a sequence, or make values that are drawn from one.
fn may_draw(node: &NodeEnum) -> bool {
    use pg::AlterTableType::{AtAddColumn, AtAlterColumnType};
    match node {
        NodeEnum::AlterSeqStmt(_) | NodeEnum::CreateTableAsStmt(_) | NodeEnum::RefreshMatViewStmt(_) => true,
        NodeEnum::AlterTableStmt(alter) => alter.cmds.iter().any(|command| match &command.node {
            Some(NodeEnum::AlterTableCmd(command)) => {
                [AtAddColumn as i32, AtAlterColumnType as i32].contains(&command.subtype)
            }
            _ => true,
        }),
        _ => false,
    }
}

fn statement_name(node: &NodeEnum) -> String {
    let text = format!("{node:?}");
    let name: String = text
        .chars()
        .take_while(|character| character.is_ascii_alphanumeric())
        .collect();
    name.trim_end_matches("Stmt").to_ascii_lowercase()
}
