//! What a session's settings contribute to the meaning of its statements.
//!
//! Always true: a setting whose value is not known makes what depends on it unknown, never wrong.

use super::asked::Change;
use crate::control::Control;
use crate::interpret::{self, Portals};
use crate::sql::{Kind, Planned, SessionSettings};
use crate::state::Catalog;
use crate::state::catalog::{ANYWHERE, TEMPORARY};
use crate::trace::{Outcome, SessionFacts};
use crate::value::io::parse_bool;
use crate::value::{Context, Value};
use crate::verdict::TxnId;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;

/// The search path, unless somebody says otherwise.
const DEFAULT_PATH: &str = "\"$user\", public";

/// Digits of floats, if nobody knows how many are printed.
const UNKNOWN_DIGITS: i32 = -99;

/// One session as the interpreter sees it. Cheap to clone: nearly no transaction changes it.
#[derive(Clone, Debug)]
pub struct SessionState(Arc<Facts>);

impl Deref for SessionState {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        &self.0
    }
}

#[derive(Clone, Debug)]
pub struct Facts {
    pub settings: SessionSettings,
    pub context: Arc<Context>,
    /// Statements of SQL-level PREPARE, by name.
    pub prepared: FxHashMap<String, (Arc<str>, Vec<u32>)>,
    /// Cursors and portals that are open.
    pub portals: Portals,
    /// The number of the session's transaction after which this is the state.
    after: u64,
    names: Names,
    initial: Option<Box<(SessionSettings, Names)>>,
}

/// What the search path is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Names {
    /// The setting as it was said, with `"$user"` in it.
    path: String,
    user: String,
    /// Of SET ROLE.
    role: Option<String>,
}

impl SessionState {
    pub fn new(facts: &SessionFacts, server: &[(String, String)], catalog: &Catalog) -> SessionState {
        let temporary = Arc::from(format!("{TEMPORARY} of {}", facts.session.0));
        let mut state = Facts {
            settings: SessionSettings {
                temporary,
                ..SessionSettings::default()
            },
            context: Arc::new(Context::defaults()),
            prepared: FxHashMap::default(),
            portals: Portals::default(),
            after: u64::MAX,
            names: Names {
                path: DEFAULT_PATH.to_owned(),
                user: facts.user.clone(),
                role: None,
            },
            initial: None,
        };
        state.search();
        let roles = catalog.role_settings();
        for (name, value) in server
            .iter()
            .chain(roles.of(&facts.user))
            .chain(&facts.parameters)
        {
            if name == "options" {
                for (name, value) in options_of(value) {
                    state.assign(&name, &value);
                }
            } else {
                state.assign(name, value);
            }
        }
        let is_said = facts.parameters.iter().any(|(name, _)| name == "search_path");
        if roles.are_of_another(&facts.user, "search_path") && !is_said {
            state.assign("search_path", ANYWHERE);
        }
        state.initial = Some(Box::new((state.settings.clone(), state.names.clone())));
        state.refresh(catalog);
        SessionState(Arc::new(state))
    }

    /// Whether both are the very same, so that nothing was changed in between.
    pub fn is(&self, other: &SessionState) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The session, to be changed; a copy if others know it, too.
    pub fn change(&mut self) -> &mut Facts {
        Arc::make_mut(&mut self.0)
    }

    /// The session at the begin of its transaction `number`. A cursor that was held may have been moved by a
    /// transaction in between that nobody judged.
    pub fn at(&self, number: u64) -> SessionState {
        let mut state = self.clone();
        if !state.portals.is_empty() && state.after.wrapping_add(1) != number {
            state.change().portals = Portals::default();
        }
        state
    }

    /// Takes back what was set since `then`, in the same transaction.
    pub fn set_back(&mut self, then: &SessionState, catalog: &Catalog) {
        if self.is(then) || (self.names == then.names && self.settings == then.settings) {
            return;
        }
        let state = self.change();
        state.settings = then.settings.clone();
        state.names = then.names.clone();
        state.refresh(catalog);
    }

    /// Whatever of the plan was done by set_config, for the session or, `locally`, for the transaction.
    pub fn configure(&mut self, planned: &Planned, outcome: &Outcome, locally: bool, catalog: &Catalog) {
        let Outcome::Answer(answer) = outcome else {
            return;
        };
        if planned.touches.changes_session {
            self.blur(catalog);
        }
        for set in planned.sets.iter() {
            let name = match &set.name {
                Some(name) if !matters(name) => continue,
                name => name,
            };
            // It answers what it has set.
            let cell = || answer.rows.first()?.get(set.column?)?.as_deref();
            let value = cell().and_then(|cell| std::str::from_utf8(cell).ok());
            match (name, value, set.local) {
                (Some(_), Some(_), Some(true)) if !locally => {}
                (Some(name), Some(value), Some(_)) => self.change().set(name, Some(value), catalog),
                _ => self.blur(catalog),
            }
        }
    }

    /// A statement of the session was answered or failed.
    pub fn step(&mut self, planned: &Planned, change: &Change, outcome: &Outcome, catalog: &Catalog) {
        self.set(planned, outcome, catalog);
        self.follow(change, outcome);
    }

    /// Whatever a statement has set.
    pub fn set(&mut self, planned: &Planned, outcome: &Outcome, catalog: &Catalog) {
        if matches!(outcome, Outcome::Answer(_)) {
            self.adjust(&planned.kind, catalog);
        }
        self.configure(planned, outcome, true, catalog);
    }

    /// Part of the session was not seen: what it has set and prepared is not known.
    pub fn blur(&mut self, catalog: &Catalog) {
        let state = self.change();
        state.prepared.clear();
        state.portals = Portals::default();
        state.names = Names {
            path: ANYWHERE.to_owned(),
            user: ANYWHERE.to_owned(),
            role: None,
        };
        state.search();
        let settings = &mut state.settings;
        let unknown = [
            &mut settings.time_zone,
            &mut settings.date_style,
            &mut settings.interval_style,
            &mut settings.bytea_output,
        ];
        unknown.into_iter().for_each(|s| "unknown".clone_into(s));
        settings.extra_float_digits = UNKNOWN_DIGITS;
        // Under these less is certain than under their opposites.
        settings.standard_strings = false;
        settings.is_replica = true;
        settings.commits_early = true;
        state.refresh(catalog);
    }

    /// Transaction control, as far as it concerns open cursors and settings.
    pub fn control(&mut self, control: &Control, catalog: &Catalog) {
        match control {
            Control::ResetAll => self.change().reset(catalog),
            Control::DiscardAll => {
                let state = self.change();
                state.set("session_authorization", None, catalog);
                state.reset(catalog);
                state.prepared.clear();
                state.portals = Portals::default();
            }
            _ => {}
        }
        if !self.portals.is_empty() {
            self.change().portals.control(control);
        }
    }

    /// SET and its kin.
    pub fn adjust(&mut self, kind: &Kind, catalog: &Catalog) {
        match kind {
            Kind::Set { name, value, .. } => self.change().set(name, value.as_deref(), catalog),
            Kind::Reset(Some(name)) => self.change().set(name, None, catalog),
            Kind::Reset(None) => self.change().reset(catalog),
            Kind::Prepare { name, types, text } => {
                let statement = (text.clone(), types.clone());
                self.change().prepared.insert(name.clone(), statement);
            }
            Kind::Deallocate(Some(name)) => {
                self.change().prepared.remove(name);
            }
            Kind::Deallocate(None) => self.change().prepared.clear(),
            Kind::Ddl(ddl) if ddl.is_temporary() => {
                let settings = &mut self.change().settings;
                let own = settings.temporary.to_string();
                if !settings.search_path.contains(&own) {
                    settings.search_path.insert(0, own);
                }
            }
            _ => {}
        }
    }

    /// The session after its transaction `number`, which left `running` while it ran and wants `lasting` to stay
    /// if it commits. What is prepared stays in any case; a cursor is held only if its rows are `certain`.
    pub fn ended(
        &self,
        number: u64,
        committed: bool,
        running: &SessionState,
        lasting: &SessionState,
        certain: bool,
    ) -> SessionState {
        let mut state = if committed { lasting.clone() } else { self.clone() };
        if !committed && state.prepared != running.prepared {
            state.change().prepared = running.prepared.clone();
        }
        if !running.portals.is_empty() || !state.portals.is_empty() {
            state.change().portals = match certain {
                true => running.portals.end(committed, &self.portals),
                false => Portals::default(),
            };
            state.change().after = number;
        }
        state
    }
}

impl Facts {
    /// SET name = value, or back to what the session began with.
    pub fn set(&mut self, name: &str, value: Option<&str>, catalog: &Catalog) {
        let name = name.to_ascii_lowercase();
        match value {
            Some(value) => self.assign(&name, value),
            None => self.take_back(&name),
        }
        self.refresh(catalog);
    }

    fn take_back(&mut self, name: &str) {
        let Some(initial) = &self.initial else { return };
        let (settings, names) = &**initial;
        let now = &mut self.settings;
        match name {
            "search_path" => {
                let path = names.path.clone();
                self.assign(name, &path);
            }
            "role" => self.assign(name, "none"),
            "session_authorization" => {
                let user = names.user.clone();
                self.assign(name, &user);
            }
            "timezone" => now.time_zone.clone_from(&settings.time_zone),
            "datestyle" => now.date_style.clone_from(&settings.date_style),
            "intervalstyle" => now.interval_style.clone_from(&settings.interval_style),
            "bytea_output" => now.bytea_output.clone_from(&settings.bytea_output),
            "extra_float_digits" => now.extra_float_digits = settings.extra_float_digits,
            "standard_conforming_strings" => now.standard_strings = settings.standard_strings,
            "session_replication_role" => now.is_replica = settings.is_replica,
            "synchronous_commit" => now.commits_early = settings.commits_early,
            _ => {}
        }
    }

    /// All settings as the session began with; who it is stays, and its temporary tables stay.
    pub fn reset(&mut self, catalog: &Catalog) {
        for name in SETTINGS
            .iter()
            .filter(|name| !matches!(**name, "role" | "session_authorization"))
        {
            self.take_back(name);
        }
        self.refresh(catalog);
    }

    /// The schemas that are searched, by what is said of them now.
    fn search(&mut self) {
        let own = self.settings.temporary.to_string();
        let had = self.settings.search_path.contains(&own);
        let user = self.names.role.as_deref().unwrap_or(&self.names.user);
        let mut path = path_of(&self.names.path, user);
        for schema in path.iter_mut().filter(|schema| *schema == TEMPORARY) {
            schema.clone_from(&own);
        }
        if had && !path.contains(&own) {
            path.insert(0, own);
        }
        self.settings.search_path = path;
    }

    fn assign(&mut self, name: &str, value: &str) {
        match name.to_ascii_lowercase().as_str() {
            "search_path" => {
                value.clone_into(&mut self.names.path);
                self.search();
            }
            "role" => {
                self.names.role = (!value.eq_ignore_ascii_case("none")).then(|| value.to_owned());
                self.search();
            }
            "session_authorization" => {
                self.names.role = None;
                value.clone_into(&mut self.names.user);
                self.search();
            }
            "timezone" => self.settings.time_zone = value.to_owned(),
            "datestyle" => self.settings.date_style = value.to_owned(),
            "intervalstyle" => self.settings.interval_style = value.to_owned(),
            "bytea_output" => self.settings.bytea_output = value.to_owned(),
            "extra_float_digits" => {
                self.settings.extra_float_digits = value.trim().parse().unwrap_or(UNKNOWN_DIGITS)
            }
            "session_replication_role" => self.settings.is_replica = value.eq_ignore_ascii_case("replica"),
            "synchronous_commit" => self.settings.commits_early = is_off(value),
            "standard_conforming_strings" => {
                self.settings.standard_strings = value.eq_ignore_ascii_case("on")
            }
            _ => {}
        }
    }

    /// The catalog, or a setting, has changed.
    pub fn refresh(&mut self, catalog: &Catalog) {
        self.context = interpret::context(catalog, &self.settings, Value::Unknown);
    }
}

/// The settings that the meaning of a statement depends on.
const SETTINGS: &[&str] = &[
    "search_path",
    "role",
    "session_authorization",
    "timezone",
    "datestyle",
    "intervalstyle",
    "bytea_output",
    "extra_float_digits",
    "standard_conforming_strings",
    "session_replication_role",
    "synchronous_commit",
];

/// Whether a setting that can be turned off is.
pub fn is_off(value: &str) -> bool {
    matches!(parse_bool(value.trim_matches('\'')), Ok(Value::Bool(false)))
}

fn matters(name: &str) -> bool {
    SETTINGS.contains(&name.to_ascii_lowercase().as_str())
}

/// `-c name=value --name=value`, blanks escaped with a backslash.
fn options_of(text: &str) -> Vec<(String, String)> {
    let plain = text.replace("\\ ", "\u{1}");
    let words = plain.split_whitespace().filter(|w| *w != "-c");
    let pairs = words.filter_map(|w| {
        w.trim_start_matches("-c")
            .trim_start_matches("--")
            .split_once('=')
    });
    pairs
        .map(|(n, v)| (n.replace('-', "_"), v.replace('\u{1}', " ")))
        .collect()
}

/// Schemas in the order they are searched.
fn path_of(setting: &str, user: &str) -> Vec<String> {
    let names = setting.split(',').map(|n| n.trim());
    let names = names.map(|n| match n.strip_prefix('"').and_then(|n| n.strip_suffix('"')) {
        Some("$user") => user.to_owned(),
        Some(quoted) => quoted.replace("\"\"", "\""),
        None if n.trim_matches('\'') == "$user" => user.to_owned(),
        None => n.trim_matches('\'').to_ascii_lowercase(),
    });
    names.filter(|n| !n.is_empty()).collect()
}

/// Transactions that are remembered after their sessions have left them.
const LEFT_MAX: usize = 256;

/// What sessions were like when they began transactions that others end.
#[derive(Clone, Default)]
pub struct Left {
    then: FxHashMap<TxnId, SessionState>,
    order: VecDeque<TxnId>,
}

impl Left {
    pub fn of(&self, txn: TxnId) -> Option<&SessionState> {
        self.then.get(&txn)
    }

    pub fn keep(&mut self, txn: TxnId, then: SessionState) {
        self.then.insert(txn, then);
        self.order.push_back(txn);
        if self.order.len() > LEFT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.then.remove(&oldest);
        }
    }
}
