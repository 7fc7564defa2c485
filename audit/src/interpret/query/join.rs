//! FROM: every combination of rows that joins and conditions admit.

use super::{Emit, Level};
use crate::interpret::run::{Fault, Frame, Outcome, Run, Scope, Slot};
use crate::sql::plan::{Expr, From};
use crate::state::RowId;

impl Run<'_> {
    /// Every combination of rows that the FROM clause and the conditions admit.
    pub(in crate::interpret) fn found(&self, level: &Level<'_>, emit: Emit<'_>) -> Outcome<()> {
        let mut frame = Frame::new(level.select.relations.len());
        let locked = !level.select.locking.is_empty() && level.select.group.is_none();
        let mut admit = |frame: &mut Frame, certain: bool| -> Outcome<()> {
            let scope = Scope {
                frame,
                outer: level.outer,
            };
            let Some(filtered) = self.admits(&level.select.filter, &scope, level.strict)? else {
                return Ok(());
            };
            let certain = certain && filtered;
            if locked {
                return match self.relock(level, frame, certain)? {
                    Some(certain) => emit(frame, certain),
                    None => Ok(()),
                };
            }
            emit(frame, certain)
        };
        match &level.select.from {
            None => admit(&mut frame, true),
            Some(from) => self.from(level, from, &mut frame, true, &mut admit),
        }
    }

    pub(super) fn from(
        &self,
        level: &Level<'_>,
        from: &From,
        frame: &mut Frame,
        certain: bool,
        emit: Emit<'_>,
    ) -> Outcome<()> {
        match from {
            From::Scan(scan) => self.scan(level, scan, frame, certain, emit),
            From::Inner(left, right) => self.from(level, left, frame, certain, &mut |frame, certain| {
                self.from(level, right, frame, certain, emit)
            }),
            From::Filter(inner, conditions) => {
                self.from(level, inner, frame, certain, &mut |frame, certain| {
                    let scope = Scope {
                        frame,
                        outer: level.outer,
                    };
                    match self.admits(conditions, &scope, level.strict)? {
                        Some(still) => emit(frame, certain && still),
                        None => Ok(()),
                    }
                })
            }
            From::Left {
                left,
                right,
                right_relations,
            } => self.from(level, left, frame, certain, &mut |frame, certain| {
                let (mut surely, mut maybe) = (false, false);
                let open_before = level.open.replace(false);
                self.from(level, right, frame, true, &mut |frame, matched| {
                    surely |= matched;
                    maybe |= !matched;
                    emit(frame, certain && matched)
                })?;
                let open = level.open.get();
                level.open.set(open || open_before);
                if surely {
                    return Ok(());
                }
                for relation in right_relations {
                    frame.slots[*relation] = Slot {
                        row: None,
                        id: RowId(0),
                    };
                }
                emit(frame, certain && !maybe && !open)
            }),
            From::Full {
                left,
                right,
                on,
                left_relations,
                right_relations,
            } => self.full_join(
                level,
                left,
                right,
                on,
                left_relations,
                right_relations,
                frame,
                certain,
                emit,
            ),
        }
    }

    pub(super) fn full_join(
        &self,
        level: &Level<'_>,
        left: &From,
        right: &From,
        on: &[Expr],
        left_relations: &[usize],
        right_relations: &[usize],
        frame: &mut Frame,
        certain: bool,
        emit: Emit<'_>,
    ) -> Outcome<()> {
        let mut lefts: Vec<Vec<Slot>> = Vec::new();
        let mut rights: Vec<Vec<Slot>> = Vec::new();
        let mut all_certain = certain;
        self.from(level, left, frame, true, &mut |frame, certain| {
            all_certain &= certain;
            lefts.push(
                left_relations
                    .iter()
                    .map(|relation| frame.slots[*relation].clone())
                    .collect(),
            );
            Ok(())
        })?;
        self.from(level, right, frame, true, &mut |frame, certain| {
            all_certain &= certain;
            rights.push(
                right_relations
                    .iter()
                    .map(|relation| frame.slots[*relation].clone())
                    .collect(),
            );
            Ok(())
        })?;
        if !all_certain || level.open.get() {
            return Fault::unsure("full_join_over_unknown");
        }
        let empty = Slot {
            row: None,
            id: RowId(0),
        };
        let mut right_matched = vec![false; rights.len()];
        for slots in &lefts {
            for (relation, slot) in left_relations.iter().zip(slots) {
                frame.slots[*relation] = slot.clone();
            }
            let mut matched = false;
            for (place, other) in rights.iter().enumerate() {
                self.work(1)?;
                for (relation, slot) in right_relations.iter().zip(other) {
                    frame.slots[*relation] = slot.clone();
                }
                let scope = Scope {
                    frame,
                    outer: level.outer,
                };
                match self.admits(on, &scope, false)? {
                    None => {}
                    Some(true) => {
                        matched = true;
                        right_matched[place] = true;
                        emit(frame, true)?;
                    }
                    Some(false) => return Fault::unsure("full_join_over_unknown"),
                }
            }
            if !matched {
                for relation in right_relations {
                    frame.slots[*relation] = empty.clone();
                }
                emit(frame, true)?;
            }
        }
        for (place, other) in rights.iter().enumerate() {
            if right_matched[place] {
                continue;
            }
            for relation in left_relations {
                frame.slots[*relation] = empty.clone();
            }
            for (relation, slot) in right_relations.iter().zip(other) {
                frame.slots[*relation] = slot.clone();
            }
            emit(frame, true)?;
        }
        Ok(())
    }
}
