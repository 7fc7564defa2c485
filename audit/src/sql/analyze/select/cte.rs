//! WITH: common table expressions, recursive ones too.

use super::returned;
use crate::sql::analyze::{Analyzer, Result, VisibleCte, strings_of, unmodelled};
use crate::sql::mention::mentioned;
use crate::sql::plan::{Cte, CteQuery};
use crate::value::TypeOid;
use pg_query::NodeEnum;
use pg_query::protobuf::{self as pg};

impl Analyzer<'_> {
    pub(in crate::sql::analyze) fn with_clause(&mut self, with: &pg::WithClause) -> Result<Vec<Cte>> {
        let mut ctes = Vec::new();
        for node in &with.ctes {
            let Some(NodeEnum::CommonTableExpr(cte)) = &node.node else {
                return unmodelled("with");
            };
            if cte.search_clause.is_some() || cte.cycle_clause.is_some() {
                return unmodelled("cte_search_cycle");
            }
            let number = self.cte_count;
            self.cte_count += 1;
            let aliases: Vec<String> = strings_of(&cte.aliascolnames)
                .into_iter()
                .map(str::to_owned)
                .collect();
            let Some(inner) = self.required(&cte.ctequery)?.node.as_ref() else {
                return unmodelled("with");
            };
            let (query, names, types) = match inner {
                NodeEnum::SelectStmt(select) if with.recursive && self.refers_to(select, &cte.ctename) => {
                    self.recursive_cte(select, &cte.ctename, number, &aliases)?
                }
                NodeEnum::SelectStmt(select) => {
                    let query = self.query(select, false)?;
                    let names = query.names[..query.visible].to_vec();
                    let types = query.types[..query.visible].to_vec();
                    (CteQuery::Plain(query), names, types)
                }
                NodeEnum::InsertStmt(insert) => {
                    let insert = self.insert(insert)?;
                    let (names, types) = returned(insert.returning.as_ref());
                    (CteQuery::Insert(Box::new(insert)), names, types)
                }
                NodeEnum::UpdateStmt(update) => {
                    let update = self.update(update)?;
                    let (names, types) = returned(update.returning.as_ref());
                    (CteQuery::Update(Box::new(update)), names, types)
                }
                NodeEnum::DeleteStmt(delete) => {
                    let delete = self.delete(delete)?;
                    let (names, types) = returned(delete.returning.as_ref());
                    (CteQuery::Delete(Box::new(delete)), names, types)
                }
                _ => return unmodelled("with"),
            };
            let columns = names
                .into_iter()
                .zip(types)
                .enumerate()
                .map(|(place, (name, type_oid))| (aliases.get(place).cloned().unwrap_or(name), type_oid, -1))
                .collect();
            self.ctes.push(VisibleCte {
                name: cte.ctename.clone(),
                number,
                columns,
                working: false,
                known: true,
            });
            ctes.push(Cte {
                name: cte.ctename.clone(),
                query,
                number,
            });
        }
        Ok(ctes)
    }

    pub(super) fn refers_to(&self, select: &pg::SelectStmt, name: &str) -> bool {
        let node = NodeEnum::SelectStmt(Box::new(select.clone()));
        let mut tables = mentioned(&node).tables.into_iter();
        tables.any(|(schema, table)| schema.is_none() && table == name)
    }

    pub(super) fn recursive_cte(
        &mut self,
        select: &pg::SelectStmt,
        name: &str,
        number: usize,
        aliases: &[String],
    ) -> Result<(CteQuery, Vec<String>, Vec<TypeOid>)> {
        if select.op != pg::SetOperation::SetopUnion as i32
            || !select.sort_clause.is_empty()
            || select.limit_count.is_some()
            || select.limit_offset.is_some()
        {
            return unmodelled("recursive_cte");
        }
        let (Some(left), Some(right)) = (&select.larg, &select.rarg) else {
            return unmodelled("recursive_cte");
        };
        let first = self.query(left, false)?;
        let names = first.names[..first.visible].to_vec();
        let types = first.types[..first.visible].to_vec();
        let columns = names
            .iter()
            .zip(&types)
            .enumerate()
            .map(|(place, (name, type_oid))| {
                (aliases.get(place).cloned().unwrap_or(name.clone()), *type_oid, -1)
            })
            .collect();
        self.ctes.push(VisibleCte {
            name: name.to_owned(),
            number,
            columns,
            working: true,
            known: true,
        });
        let next = self.query(right, true);
        self.ctes.pop();
        let mut next = next?;
        if next.visible != first.visible {
            return unmodelled("recursive_cte");
        }
        self.cast_output(&mut next, &types)?;
        let visible = first.visible;
        Ok((
            CteQuery::Recursive {
                first,
                next,
                all: select.all,
                visible,
            },
            names,
            types,
        ))
    }
}
