//! Keeps back what was found by a catalog that may have gone stale.
//!
//! In: doubts (something may have changed the catalog and nobody saw what), readings of the catalog, violations. Out:
//! violations that may be told, and whether the catalog should be read again.
//!
//! A reading has a version: two readings with the same version saw the same catalog, and it was the same all the time
//! between them. So whatever was judged by that catalog in between was judged by the right one, whatever nobody saw.
//!
//! ```text
//! read (v7)      gap        ✗ found, kept back      read (v7): ✗ is told
//! ────┴────────▒▒▒▒▒▒▒────────────┴──────────────────────┴──────────► time
//!                                                   read (v8): ✗ is dropped, and v8 is taken over
//! ```
//!
//! Always true:
//!   - nothing is told that was judged by a catalog in doubt;
//!   - a reading that nothing stands on confirms nothing.

use crate::state::{Catalog, TableId};
use crate::trace::{CatalogPart, Nanos, Window};
use crate::verdict::Violation;
use std::sync::Arc;

/// What is counted for what was judged by a catalog that may have been another.
pub const REASON: &str = "catalog_in_doubt";

/// Violations that are kept back; more are dropped.
const KEPT_MAX: usize = 64;

/// A reading of the catalog that the audit asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// A catalog of this version need not be read as a whole.
    pub known: Option<String>,
}

/// A violation that is not told yet.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The fingerprint under which its suspicions are counted.
    pub first_sight: String,
    pub violation: Violation,
    /// When the last of its transactions had ended.
    pub done: Nanos,
}

/// What a reading of the catalog comes to.
#[derive(Debug)]
pub enum Reading {
    /// It is what it was taken for: these may be told.
    Confirmed(Vec<Kept>),
    /// It is another one, to be taken over; these were found by the wrong one.
    Changed(Vec<Kept>),
    /// Nothing follows.
    Idle,
}

/// The catalog in use was read, or can be relied on, as this version.
#[derive(Clone)]
struct Basis {
    version: String,
    catalog: Arc<Catalog>,
}

/// Something may have changed the catalog, and nobody saw what.
#[derive(Clone)]
struct Doubt {
    /// When it was over.
    until: Nanos,
    /// The catalog was not read since it came up.
    fresh: bool,
    /// The catalog as it was by then: what was made later is known.
    catalog: Arc<Catalog>,
}

/// What can be relied on at one time.
#[derive(Clone, Default)]
pub struct Standing {
    /// What ended before this was judged by the right catalog.
    right_until: Nanos,
    doubt: Option<Doubt>,
}

impl Standing {
    pub fn is_in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// Whether what ended at `done` may have been judged by the wrong catalog.
    pub fn may_be_wrong(&self, done: Nanos) -> bool {
        self.doubt.is_some() && done >= self.right_until
    }

    /// Whether all of these tables were made when nothing was in doubt any more, and nothing older is needed to
    /// understand what is done to them.
    pub fn are_known(&self, tables: &[TableId]) -> bool {
        self.doubt.as_ref().is_none_or(|doubt| {
            let is_new = |table: &TableId| doubt.catalog.table(*table).is_none();
            doubt.until != Nanos::MAX && doubt.catalog.is_plain() && tables.iter().all(is_new)
        })
    }
}

#[derive(Clone, Default)]
pub struct Withheld {
    basis: Option<Basis>,
    now: Standing,
    kept: Vec<Kept>,
}

impl Withheld {
    /// Somebody may have changed the catalog unseen, at the latest at `until`.
    pub fn doubt(&mut self, until: Nanos, catalog: &Arc<Catalog>) {
        let until = self
            .now
            .doubt
            .as_ref()
            .map_or(until, |doubt| doubt.until.max(until));
        self.now.doubt = Some(Doubt {
            until,
            fresh: true,
            catalog: catalog.clone(),
        });
    }

    /// Nobody whom nobody sees does anything after `at`.
    pub fn settle(&mut self, at: Nanos) {
        if let Some(doubt) = &mut self.now.doubt {
            doubt.until = doubt.until.min(at);
            doubt.fresh = true;
        }
    }

    /// What was made by somebody who had ended at `at` may have been changed since, if the doubt reaches that far.
    pub fn follow(&mut self, at: Nanos, catalog: &Arc<Catalog>) {
        if let Some(doubt) = self.now.doubt.as_mut().filter(|doubt| at <= doubt.until) {
            doubt.catalog = catalog.clone();
        }
    }

    pub fn now(&self) -> &Standing {
        &self.now
    }

    /// Whether a violation with this fingerprint is kept back.
    pub fn has(&self, first_sight: &str) -> bool {
        self.kept.iter().any(|kept| kept.first_sight == first_sight)
    }

    /// Keeps a violation back; `false` if there is no room for it.
    pub fn keep(&mut self, kept: Kept) -> bool {
        let known = self
            .kept
            .iter_mut()
            .find(|k| k.violation.fingerprint == kept.violation.fingerprint);
        if let Some(known) = known {
            known.violation.repeats += 1;
            return true;
        }
        let room = self.kept.len() < KEPT_MAX;
        if room {
            self.kept.push(kept);
        }
        room
    }

    /// Counts another suspicion with this fingerprint, if one of them is kept back.
    pub fn repeat(&mut self, first_sight: &str) -> bool {
        let known = self.kept.iter_mut().find(|k| k.first_sight == first_sight);
        known.map(|kept| kept.violation.repeats += 1).is_some()
    }

    /// Those that were kept back for another reason than a doubt and that nothing speaks against any more.
    pub fn release(&mut self, mut may_tell: impl FnMut(&Kept) -> bool) -> Vec<Kept> {
        if self.kept.is_empty() || self.now.doubt.is_some() {
            return Vec::new();
        }
        self.kept.extract_if(.., |kept| may_tell(kept)).collect()
    }

    /// Everything that is kept back.
    pub fn take_all(&mut self) -> Vec<Kept> {
        std::mem::take(&mut self.kept)
    }

    /// The catalog was read before anything was seen.
    pub fn begin(&mut self, parts: &[CatalogPart], catalog: &Arc<Catalog>) {
        self.now.doubt = None;
        self.basis = version_of(parts).map(|version| Basis {
            version: version.to_owned(),
            catalog: catalog.clone(),
        });
    }

    /// The catalog was read in `window`, and no change of it was seen since; `catalog` is the one in use.
    pub fn read(&mut self, window: Window, parts: &[CatalogPart], catalog: &Arc<Catalog>) -> Reading {
        let Some(version) = version_of(parts) else {
            return Reading::Idle;
        };
        let Some(doubt) = &mut self.now.doubt else {
            // What is in use is known to be right: this is what it is called.
            self.basis = Some(Basis {
                version: version.to_owned(),
                catalog: catalog.clone(),
            });
            return Reading::Idle;
        };
        let basis = self.basis.as_ref().filter(|b| b.catalog.is_as_lasting(catalog));
        let same = basis.is_some_and(|basis| basis.version == version);
        // Its version alone is no catalog.
        if !same && parts.len() == 1 {
            return Reading::Idle;
        }
        doubt.fresh = false;
        if doubt.until < window.sent {
            self.now.doubt = None;
        }
        if same {
            self.now.right_until = self.now.right_until.max(window.sent);
            let was_before = |kept: &mut Kept| kept.done < window.sent;
            return Reading::Confirmed(self.kept.extract_if(.., was_before).collect());
        }
        Reading::Changed(self.take_all())
    }

    /// The catalog that was read is the one in use from now on.
    pub fn adopted(&mut self, parts: &[CatalogPart], catalog: &Arc<Catalog>) {
        self.basis = version_of(parts).map(|version| Basis {
            version: version.to_owned(),
            catalog: catalog.clone(),
        });
        if let Some(doubt) = &mut self.now.doubt {
            doubt.catalog = catalog.clone();
        }
    }

    /// Whether there is something to be had from reading the catalog again. `suspected`: something may be found soon.
    pub fn wanted(&self, catalog: &Arc<Catalog>, suspected: bool) -> Option<Wanted> {
        let doubt = self.now.doubt.as_ref()?;
        let basis = self.basis.as_ref().filter(|b| b.catalog.is_as_lasting(catalog));
        let wanted = doubt.fresh || basis.is_none() || suspected || !self.kept.is_empty();
        wanted.then(|| Wanted {
            known: basis.map(|basis| basis.version.clone()),
        })
    }
}

/// The version in the answers to the queries of the catalog.
pub fn version_of(parts: &[CatalogPart]) -> Option<&str> {
    let (_, rows) = parts.iter().find(|(name, _)| name == "version")?;
    rows.first()?.first()?.as_deref()
}
