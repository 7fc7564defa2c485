//! What a story stands on, as SQL: the tables, types and rows that its transactions found.
//!
//! In: the members of a story and the world in which it was proved. Out: statements that bring the start about
//! on an empty database, statements that take it away again, and remarks about what is missing.
//!
//! Always true:
//!   - only what the story names or touches is there, and of large tables only the rows that it asked for;
//!   - what is not known is not made up silently: a remark says so;
//!   - the same story gives the same statements.

mod ddl;

use crate::classify::{only_step, statement_snapshots};
use crate::control::Control;
use crate::explain::Explainer;
use crate::explain::run::{Scene, run};
use crate::explain::world::World;
use crate::interpret::{Heed, Touch};
use crate::points::{Chooser, CommitId};
use crate::reference::Member;
use crate::state::catalog::{Function, Table, TableKind};
use crate::state::store::Chain;
use crate::state::view::{Knowledge, has_key};
use crate::state::{Catalog, Row, RowId, TableId};
use crate::trace::Nanos;
use crate::trace::lex::{Kind, tokens};
use crate::verdict::Ground;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Rows of one table that are written down.
const ROWS_MAX: usize = 200;

/// Everything that has to be there before the first statement is sent.
#[derive(Default)]
struct Needed {
    tables: BTreeSet<TableId>,
    /// By the table where they are kept.
    rows: BTreeMap<TableId, BTreeMap<RowId, Row>>,
    views: BTreeSet<TableId>,
    functions: BTreeMap<u32, Arc<Function>>,
    /// Rows that were left out.
    left_out: BTreeMap<TableId, usize>,
}

pub fn of(members: &[Member], world: &World, explainer: &Explainer) -> Ground {
    let place = Place {
        world,
        explainer,
        members,
        commits: members.iter().filter_map(|m| m.commit).collect(),
        start: members.iter().map(|m| m.txn.sent()).min().unwrap_or(0),
    };
    let mut needed = Needed::default();
    for member in members {
        place.named(member, &mut needed);
        place.touched(member, &mut needed);
    }
    place.render(needed)
}

struct Place<'a> {
    world: &'a World,
    explainer: &'a Explainer,
    members: &'a [Member],
    commits: Vec<CommitId>,
    /// When the first statement was sent.
    start: Nanos,
}

impl Place<'_> {
    fn catalog(&self) -> &Catalog {
        &self.world.store.catalog
    }

    /// Relations and functions that the text names, and those that they name themselves.
    fn named(&self, member: &Member, needed: &mut Needed) {
        let path = &member.session.settings.search_path;
        let mut texts: Vec<Arc<str>> = member.txn.steps.iter().map(|s| s.seen.text.clone()).collect();
        while let Some(text) = texts.pop() {
            if creates(&text) {
                continue;
            }
            for (schema, name) in names(&text) {
                let schema = schema.as_deref();
                if let Some(found) = self.catalog().find(schema, &name, path) {
                    let is_new = match found.kind {
                        TableKind::View | TableKind::MaterializedView => needed.views.insert(found.id),
                        TableKind::Sequence => false,
                        _ => needed.tables.insert(found.storage),
                    };
                    let own_texts = ddl::texts_of(found);
                    texts.extend(own_texts.into_iter().filter(|_| is_new));
                }
                for function in self.catalog().find_functions(schema, &name, path) {
                    if needed.functions.insert(function.oid, function.clone()).is_none() {
                        texts.push(function.source.clone());
                    }
                }
            }
        }
    }

    /// Tables and rows that the statements read, as the interpreter sees it.
    fn touched(&self, member: &Member, needed: &mut Needed) {
        let scene = Scene {
            store: &self.world.store,
            order: &self.world.order,
            planner: &self.explainer.planner,
            hidden: member.commit,
        };
        for (at, step) in member.txn.steps.iter().enumerate() {
            if step.control != Control::Data || creates(&step.seen.text) {
                continue;
            }
            let alone = only_step(&member.txn, at, |window| window);
            let chooser = RefCell::new(Chooser::default());
            let rules = statement_snapshots();
            let attempt = run(&alone, &rules, &scene, &member.session, &chooser, Heed::Compared);
            for touch in attempt.reads.iter().flat_map(|read| &read.touches) {
                self.take(touch, needed);
            }
        }
        let commit = member.commit.and_then(|id| self.world.order.get(id));
        for (table, id) in commit.iter().flat_map(|commit| &commit.rows) {
            self.take_row(*table, *id, &|_| true, needed);
        }
    }

    fn take(&self, touch: &Touch, needed: &mut Needed) {
        let table = &touch.table();
        let Some(kept) = self.world.store.tables.get(table) else {
            return;
        };
        match touch {
            Touch::Key { columns, key, .. } => {
                for id in kept.candidates(columns, key) {
                    self.take_row(*table, id, &|row| has_key(row, columns, key), needed);
                }
            }
            Touch::Scan { filter, .. } => {
                let accepts = |row: &Row| filter.as_ref().is_none_or(|accepts| accepts(row));
                for (id, _) in kept.chains() {
                    self.take_row(*table, id, &accepts, needed);
                }
            }
        }
    }

    fn take_row(&self, table: TableId, id: RowId, wanted: &dyn Fn(&Row) -> bool, needed: &mut Needed) {
        needed.tables.insert(self.catalog().storage(table));
        let kept = self.world.store.tables.get(&table);
        let found = kept
            .and_then(|kept| kept.chain(id))
            .and_then(|chain| self.before(chain));
        let Some(row) = found.filter(|row| wanted(row)) else {
            return;
        };
        let rows = needed.rows.entry(table).or_default();
        if rows.contains_key(&id) {
            return;
        }
        if rows.len() < ROWS_MAX {
            rows.insert(id, row.clone());
        } else {
            *needed.left_out.entry(table).or_default() += 1;
        }
    }

    /// The row as it was before the story.
    fn before<'c>(&self, chain: &'c Chain) -> Option<&'c Row> {
        let is_later = |commit: CommitId| {
            self.commits.contains(&commit)
                || commit >= self.world.order.settled()
                    && self
                        .world
                        .order
                        .get(commit)
                        .is_some_and(|commit| commit.observed.sent >= self.start)
        };
        let mut versions = chain.versions.iter().rev();
        versions
            .find(|v| !is_later(v.commit))
            .and_then(|v| v.row.as_ref())
    }

    fn render(&self, needed: Needed) -> Ground {
        let catalog = self.catalog();
        let tables: Vec<&Arc<Table>> = needed.tables.iter().filter_map(|id| catalog.table(*id)).collect();
        let mut out = ddl::Written::new(catalog);
        for table in &tables {
            if !self.is_made_by_the_story(table) {
                out.table(table);
            }
        }
        out.functions(needed.functions.values());
        for (table, rows) in &needed.rows {
            if let Some(table) = catalog.table(*table) {
                out.rows(table, rows.values());
            }
        }
        out.foreign_keys();
        for id in &needed.views {
            out.views(*id);
        }
        let mut ground = out.finish();
        for table in tables {
            let name = table.qualified_name();
            let kept = self.world.store.tables.get(&table.id);
            if kept.is_none_or(|kept| kept.scanned() == Knowledge::Partial) {
                ground
                    .remarks
                    .push(format!("of {name} only the rows that were seen are known"));
            }
            if let Some(more) = needed.left_out.get(&table.id) {
                ground
                    .remarks
                    .push(format!("{more} more rows of {name} are left out"));
            }
        }
        ground.settings = self.members.iter().map(settings).collect();
        ground
    }

    /// Whether a statement of the story creates it.
    fn is_made_by_the_story(&self, table: &Table) -> bool {
        let steps = self.members.iter().flat_map(|member| &member.txn.steps);
        let mut texts = steps.map(|step| &step.seen.text).filter(|text| creates(text));
        texts.any(|text| names(text).iter().any(|(_, name)| *name == table.name))
    }
}

/// What the session of a member has to set first, to be understood as it was.
fn settings(member: &Member) -> Vec<String> {
    let path = &member.session.settings.search_path;
    let is_usual = path.iter().all(|schema| schema == "public" || schema == "$user");
    match is_usual {
        true => Vec::new(),
        false => {
            let schemas: Vec<String> = path.iter().map(|schema| ddl::quoted(schema)).collect();
            vec![format!("SET search_path = {}", schemas.join(", "))]
        }
    }
}

fn creates(text: &str) -> bool {
    let first = tokens(text).next();
    first.is_some_and(|token| text[token.place].eq_ignore_ascii_case("create"))
}

/// Every name in a text, perhaps with the schema before it.
fn names(text: &str) -> Vec<(Option<String>, String)> {
    let mut found: Vec<(Option<String>, String)> = Vec::new();
    let mut before: Option<String> = None;
    let mut dotted = false;
    for token in tokens(text) {
        let word = &text[token.place.clone()];
        let name = match token.kind {
            Kind::Word => Some(word.to_lowercase()),
            Kind::QuotedName => Some(word.trim_matches('"').replace("\"\"", "\"")),
            _ => None,
        };
        if let Some(name) = name {
            found.push((before.take().filter(|_| dotted), name.clone()));
            before = Some(name);
            dotted = false;
        } else if word == "." {
            dotted = before.is_some();
        } else {
            before = None;
            dotted = false;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn names_know_their_schema() {
        let found = names("select a.x from app.\"Account\" a where note = 'public.hidden'");
        assert!(
            found.contains(&(Some("app".into()), "Account".into())),
            "{found:?}"
        );
        assert!(found.contains(&(None, "a".into())), "{found:?}");
        assert!(!found.iter().any(|(_, name)| name == "hidden"), "{found:?}");
    }
}
