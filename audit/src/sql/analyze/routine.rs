//! Functions and procedures that users wrote in PL/pgSQL, turned into steps.
//!
//! SQL inside a routine is planned like any other; its variables are the parameters of those plans.

use super::asks::asked_by_routine;
use super::reach::astray;
use super::{Analyzer, Result, Typed, embedded, strings_of, unmodelled};
use crate::sql::plan::{Expr, Kind, OutputColumn, Planned, Routine, Step, Variable, settle};
use crate::state::catalog::Function;
use crate::value::{self, CastKind, TypeOid, oid};
use pg_query::NodeEnum;
use pg_query::protobuf as pg;
use serde_json::Value as Json;
use std::sync::Arc;

/// The variables of a routine, which SQL inside it refers to as parameters.
#[derive(Debug, Default)]
pub(crate) struct Variables {
    pub routine: String,
    pub names: Vec<String>,
    pub types: Vec<TypeOid>,
}

impl Variables {
    pub fn find(&self, name: &str) -> Option<usize> {
        self.names.iter().rposition(|other| other == name)
    }
}

impl Analyzer<'_> {
    /// A call in an expression. Modelled where it is evaluated exactly once: in a query without FROM.
    pub(super) fn user_function(
        &mut self,
        name: &str,
        candidates: Vec<Arc<Function>>,
        call: &pg::FuncCall,
    ) -> Result<Typed> {
        let fitting: Vec<&Arc<Function>> = candidates
            .iter()
            .filter(|function| {
                function
                    .arguments
                    .iter()
                    .filter(|a| matches!(a.mode, 'i' | 'b'))
                    .count()
                    == call.args.len()
            })
            .collect();
        let alone = self.levels.last().is_some_and(|level| level.relation_count == 0);
        let modelled = match fitting.as_slice() {
            [function]
                if alone && function.kind == 'f' && !function.returns_set && !self.searches_anywhere() =>
            {
                self.routine(function).ok()
            }
            _ => None,
        };
        let Some(routine) = modelled else {
            self.raw_call(name, None);
            return unmodelled(format!("function_{name}"));
        };
        let arguments = self.routine_arguments(&routine, call)?;
        let type_oid = routine.returns;
        Ok(Typed {
            expr: Expr::Routine { routine, arguments },
            ..self.unknown(type_oid)
        })
    }

    pub(super) fn call(&mut self, call: &pg::FuncCall) -> Result<Kind> {
        let names = strings_of(&call.funcname);
        let name = names.last().copied().unwrap_or("").to_owned();
        let found = self
            .catalog
            .find_functions(None, &name, &self.settings.search_path);
        let fitting: Vec<Arc<Function>> = found
            .into_iter()
            .filter(|function| {
                function.procedure && function.arguments.iter().all(|a| matches!(a.mode, 'i' | 'b'))
            })
            .filter(|function| function.arguments.len() == call.args.len())
            .cloned()
            .collect();
        let routine = match fitting.as_slice() {
            [function] if !self.searches_anywhere() => self.routine(function),
            _ => unmodelled(format!("procedure_{name}")),
        };
        let routine = match routine {
            Ok(routine) => routine,
            Err(error) => {
                match fitting.as_slice() {
                    [function] => self.touch_routine(function),
                    _ => self.touches.writes_everything = true,
                }
                return Err(error);
            }
        };
        self.levels.push(super::Level::default());
        let arguments = self.routine_arguments(&routine, call);
        self.levels.pop();
        let arguments = arguments?;
        self.columns = routine
            .outputs
            .iter()
            .map(|place| OutputColumn {
                name: routine.variables[*place].name.clone(),
                type_oid: routine.variables[*place].type_oid,
            })
            .collect();
        Ok(Kind::Call { routine, arguments })
    }

    fn routine_arguments(&mut self, routine: &Arc<Routine>, call: &pg::FuncCall) -> Result<Vec<Expr>> {
        let mut arguments = Vec::new();
        for (place, node) in call.args.iter().enumerate() {
            let typed = self.expr(node)?;
            let target = routine.variables[place].type_oid;
            arguments.push(self.coerce(typed, target, -1, CastKind::Implicit)?.expr);
        }
        Ok(arguments)
    }

    pub(super) fn do_block(&mut self, statement: &pg::DoStmt) -> Result<Kind> {
        let mut body = None;
        let mut plpgsql = true;
        for node in &statement.args {
            let Some(NodeEnum::DefElem(option)) = &node.node else {
                continue;
            };
            let text = match option.arg.as_ref().and_then(|node| node.node.as_ref()) {
                Some(NodeEnum::String(string)) => string.sval.clone(),
                _ => continue,
            };
            match option.defname.as_str() {
                "as" => body = Some(text),
                "language" => plpgsql = text.eq_ignore_ascii_case("plpgsql"),
                _ => {}
            }
        }
        let (Some(body), true) = (body, plpgsql) else {
            self.touches.writes_everything = true;
            return unmodelled("do_block");
        };
        let function = Function {
            oid: 0,
            schema: String::new(),
            name: "inline".to_owned(),
            language: "plpgsql".to_owned(),
            procedure: false,
            kind: 'f',
            volatility: 'v',
            strict: false,
            returns: oid::VOID,
            returns_set: false,
            arguments: Vec::new(),
            definition: Arc::from(format!(
                "CREATE FUNCTION inline_block() RETURNS void LANGUAGE plpgsql AS $pgassay_body${body}$pgassay_body$"
            )),
            source: Arc::from(body),
            own_settings: false,
        };
        let function = Arc::new(function);
        match self.routine(&function) {
            Ok(routine) => Ok(Kind::Do { routine }),
            Err(error) => {
                self.touch_routine(&function);
                Err(error)
            }
        }
    }

    /// The steps of a PL/pgSQL body, if all of them are modelled.
    fn routine(&mut self, function: &Arc<Function>) -> Result<Arc<Routine>> {
        let reason = format!("function_{}", function.name);
        if function.language != "plpgsql"
            || function.own_settings
            || function.returns == oid::TRIGGER
            || self.depth > 4
        {
            return unmodelled(reason);
        }
        if function
            .arguments
            .iter()
            .any(|argument| !matches!(argument.mode, 'i' | 'b') || argument.type_oid == 0)
        {
            return unmodelled(reason);
        }
        let definition = parenthesised_returns(&function.definition);
        let Ok(parsed) = pg_query::parse_plpgsql(&definition) else {
            return unmodelled(reason);
        };
        let body = &parsed[0]["PLpgSQL_function"];
        let Some(datums) = body["datums"].as_array() else {
            return unmodelled(reason);
        };
        let mut variables = Vec::new();
        let mut inputs = 0;
        for datum in datums {
            let variable = &datum["PLpgSQL_var"];
            let name = variable["refname"].as_str().unwrap_or("").to_owned();
            let (type_oid, type_modifier) = match function.arguments.get(inputs) {
                Some(argument)
                    if variable.is_object()
                        && variables.len() == inputs
                        && inputs < function.arguments.len() =>
                {
                    inputs += 1;
                    (argument.type_oid, -1)
                }
                _ if variable.is_object() => self.variable_type(variable, &function.source)?,
                // Rows are named by their fields; records are not modelled.
                _ if datum["PLpgSQL_row"].is_object() => (0, -1),
                _ => return unmodelled(format!("record_in_{}", function.name)),
            };
            variables.push(Variable {
                name,
                type_oid,
                type_modifier,
                default: None,
            });
        }
        let names = Arc::new(Variables {
            routine: function.name.clone(),
            names: variables.iter().map(|variable| variable.name.clone()).collect(),
            types: variables.iter().map(|variable| variable.type_oid).collect(),
        });
        let mut builder = Builder {
            analyzer: self,
            names,
            reason: reason.clone(),
        };
        for (place, datum) in datums.iter().enumerate() {
            if let Some(default) = datum["PLpgSQL_var"]["default_val"]["PLpgSQL_expr"]["query"].as_str() {
                if datum["PLpgSQL_var"]["isconst"].is_boolean() {
                    return unmodelled(reason);
                }
                variables[place].default = Some(builder.expression(default)?);
            }
        }
        let mut steps = builder.block(&body["action"])?;
        let strays = astray(&steps, function.arguments.len());
        self.touches.astray.extend(strays);
        let outputs: Vec<usize> = (0..function.arguments.len())
            .filter(|place| function.arguments[*place].mode == 'b')
            .collect();
        settle(&mut steps, &outputs);
        Ok(Arc::new(Routine {
            function: Some(function.clone()),
            name: function.name.clone(),
            variables,
            inputs: function.arguments.len(),
            asks: asked_by_routine(&steps),
            body: steps,
            returns: function.returns,
            returns_void: function.returns == oid::VOID,
            outputs,
            procedure: function.procedure,
        }))
    }

    /// The parser forgets lengths and precisions: they are read from the declaration itself.
    fn variable_type(&mut self, variable: &Json, source: &str) -> Result<(TypeOid, i32)> {
        let name = variable["refname"].as_str().unwrap_or("");
        let type_name = variable["datatype"]["PLpgSQL_type"]["typname"]
            .as_str()
            .unwrap_or("");
        let line = variable["lineno"]
            .as_u64()
            .and_then(|line| source.lines().nth((line as usize).saturating_sub(1)));
        let declared = line.and_then(|line| {
            let lower = line.to_ascii_lowercase();
            let at = lower.find(&name.to_ascii_lowercase())?;
            let rest = &line[at + name.len()..];
            let end = rest.find([';', ':', '=']).unwrap_or(rest.len());
            Some(rest[..end].trim().to_owned())
        });
        if let Some(declared) = declared.filter(|declared| declared.contains('(')) {
            let text = format!("SELECT NULL::{declared}");
            let parsed = pg_query::parse(&text, pg_query::ParserOptions::default()).ok();
            let select = parsed
                .and_then(|parsed| parsed.protobuf.stmts.into_iter().next())
                .and_then(|raw| raw.stmt);
            if let Some(NodeEnum::SelectStmt(select)) = select.and_then(|node| node.node) {
                if let Some(Some(NodeEnum::ResTarget(target))) =
                    select.target_list.first().map(|node| &node.node)
                {
                    if let Some(Some(NodeEnum::TypeCast(cast))) = target.val.as_ref().map(|node| &node.node) {
                        if let Some(name) = &cast.type_name {
                            return self.type_name(name);
                        }
                    }
                }
            }
            return unmodelled("variable_type");
        }
        match value::type_by_name(type_name) {
            Some(type_oid) => Ok((type_oid, -1)),
            None => unmodelled("variable_type"),
        }
    }
}

struct Builder<'b, 'a> {
    analyzer: &'b mut Analyzer<'a>,
    names: Arc<Variables>,
    reason: String,
}

impl Builder<'_, '_> {
    fn block(&mut self, action: &Json) -> Result<Vec<Step>> {
        let block = &action["PLpgSQL_stmt_block"];
        if !block.is_object() || block["exceptions"].is_object() {
            return unmodelled(self.reason.clone());
        }
        self.steps(&block["body"])
    }

    fn steps(&mut self, list: &Json) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        for item in list.as_array().into_iter().flatten() {
            let Some((kind, statement)) = item.as_object().and_then(|object| object.iter().next()) else {
                continue;
            };
            steps.push(self.step(kind, statement, item)?);
        }
        Ok(steps)
    }

    fn step(&mut self, kind: &str, statement: &Json, item: &Json) -> Result<Step> {
        let label = statement["label"].as_str().map(str::to_owned);
        Ok(match kind {
            "PLpgSQL_stmt_block" => {
                let body = self.block(item)?;
                Step::If {
                    branches: Vec::new(),
                    otherwise: body,
                }
            }
            "PLpgSQL_stmt_assign" => {
                let query = text_of(&statement["expr"]);
                let Some((target, expression)) = query.split_once(":=").or_else(|| query.split_once('='))
                else {
                    return unmodelled(self.reason.clone());
                };
                if !target.trim().chars().all(|c| c.is_alphanumeric() || c == '_') {
                    return unmodelled(self.reason.clone());
                }
                let variable = statement["varno"].as_u64().unwrap_or(0) as usize;
                let value = self.expression(expression)?;
                Step::Assign {
                    variable,
                    appends: value.appends_to(variable),
                    value,
                    settles: false,
                }
            }
            "PLpgSQL_stmt_execsql" => {
                let planned = self.statement(text_of(&statement["sqlstmt"]))?;
                let into = if statement["into"].as_bool().unwrap_or(false) {
                    Some(self.targets(&statement["target"])?)
                } else {
                    None
                };
                Step::Run {
                    statement: planned,
                    into,
                    strict: statement["strict"].as_bool().unwrap_or(false),
                    settles: Vec::new(),
                }
            }
            "PLpgSQL_stmt_perform" => {
                let planned = self.statement(text_of(&statement["expr"]))?;
                Step::Run {
                    statement: planned,
                    into: None,
                    strict: false,
                    settles: Vec::new(),
                }
            }
            "PLpgSQL_stmt_if" => {
                let mut branches = vec![(
                    self.expression(text_of(&statement["cond"]))?,
                    self.steps(&statement["then_body"])?,
                )];
                for item in statement["elsif_list"].as_array().into_iter().flatten() {
                    let branch = &item["PLpgSQL_if_elsif"];
                    branches.push((
                        self.expression(text_of(&branch["cond"]))?,
                        self.steps(&branch["stmts"])?,
                    ));
                }
                Step::If {
                    branches,
                    otherwise: self.steps(&statement["else_body"])?,
                }
            }
            "PLpgSQL_stmt_loop" => Step::Loop {
                body: self.steps(&statement["body"])?,
                label,
            },
            "PLpgSQL_stmt_while" => Step::While {
                condition: self.expression(text_of(&statement["cond"]))?,
                body: self.steps(&statement["body"])?,
                label,
            },
            "PLpgSQL_stmt_fori" => {
                let name = statement["var"]["PLpgSQL_var"]["refname"].as_str().unwrap_or("");
                // Each loop has a variable of its own; only the innermost of a name can be told apart here.
                let places: Vec<usize> = (0..self.names.names.len())
                    .filter(|place| self.names.names[*place] == name)
                    .collect();
                let Some(variable) = places.first().copied() else {
                    return unmodelled(self.reason.clone());
                };
                let by = match statement["step"].is_object() {
                    true => Some(self.expression(text_of(&statement["step"]))?),
                    false => None,
                };
                Step::ForRange {
                    variable,
                    also: places[1..].to_vec(),
                    from: self.expression(text_of(&statement["lower"]))?,
                    to: self.expression(text_of(&statement["upper"]))?,
                    by,
                    reverse: statement["reverse"].as_bool().unwrap_or(false),
                    body: self.steps(&statement["body"])?,
                    label,
                }
            }
            "PLpgSQL_stmt_fors" => Step::ForQuery {
                targets: self.targets(&statement["var"])?,
                query: self.statement(text_of(&statement["query"]))?,
                body: self.steps(&statement["body"])?,
                label,
            },
            "PLpgSQL_stmt_exit" => {
                let condition = match statement["cond"].is_object() {
                    true => Some(self.expression(text_of(&statement["cond"]))?),
                    false => None,
                };
                Step::Exit {
                    condition,
                    is_exit: statement["is_exit"].as_bool().unwrap_or(false),
                    label,
                }
            }
            "PLpgSQL_stmt_return" => match statement["expr"].is_object() {
                true => Step::Return(Some(self.expression(text_of(&statement["expr"]))?)),
                false => Step::Return(None),
            },
            "PLpgSQL_stmt_raise" => {
                let is_error = statement["elog_level"].as_i64().unwrap_or(21) >= 21;
                Step::Raise {
                    sqlstate: raised(statement),
                    is_error,
                }
            }
            "PLpgSQL_stmt_getdiag" => {
                let items = statement["diag_items"].as_array().cloned().unwrap_or_default();
                let [item] = items.as_slice() else {
                    return unmodelled(self.reason.clone());
                };
                let item = &item["PLpgSQL_diag_item"];
                if item["kind"].as_str() != Some("ROW_COUNT") {
                    return unmodelled(self.reason.clone());
                }
                Step::GetRowCount(item["target"].as_u64().unwrap_or(0) as usize)
            }
            _ => return unmodelled(self.reason.clone()),
        })
    }

    /// The variables that INTO fills.
    fn targets(&self, target: &Json) -> Result<Vec<usize>> {
        if let Some(fields) = target["PLpgSQL_row"]["fields"].as_array() {
            // The parser does not write down that a number is zero.
            let place = |field: &Json| field["varno"].as_u64().unwrap_or(0) as usize;
            return Ok(fields.iter().map(place).collect());
        }
        match target["PLpgSQL_var"]["refname"]
            .as_str()
            .and_then(|name| self.names.find(name))
        {
            Some(place) => Ok(vec![place]),
            None => unmodelled(self.reason.clone()),
        }
    }

    fn expression(&mut self, text: &str) -> Result<Arc<Planned>> {
        self.statement(&format!("SELECT {text}"))
    }

    fn statement(&mut self, text: &str) -> Result<Arc<Planned>> {
        let depth = self.analyzer.depth + 1;
        let planned = embedded(
            self.analyzer.catalog,
            text,
            self.analyzer.settings,
            self.names.clone(),
            depth,
        );
        let touches = &mut self.analyzer.touches;
        touches.read.extend(&planned.touches.read);
        touches.written.extend(&planned.touches.written);
        touches.moved.extend(&planned.touches.moved);
        touches.freed.extend(&planned.touches.freed);
        touches.astray.extend(&planned.touches.astray);
        touches.writes_everything |= planned.touches.writes_everything;
        touches.reads_everything |= planned.touches.reads_everything;
        touches.changes_session |= planned.touches.changes_session;
        touches.commits |= planned.touches.commits;
        touches.draws_everything |= planned.touches.draws_everything || !planned.touches.draws.is_empty();
        self.analyzer.may_write |= planned.may_write;
        let modelled = matches!(
            planned.kind,
            Kind::Select(_) | Kind::Insert(_) | Kind::Update(_) | Kind::Delete(_)
        );
        if !modelled || !planned.reasons.is_empty() {
            let reason = planned
                .reasons
                .first()
                .cloned()
                .unwrap_or_else(|| self.reason.clone());
            return unmodelled(reason);
        }
        Ok(Arc::new(planned))
    }
}

/// The SQLSTATE that a RAISE says, where it says it plainly.
fn raised(statement: &Json) -> Option<String> {
    let options = statement["options"].as_array();
    if options.is_some_and(|options| !options.is_empty()) {
        return None;
    }
    match statement["condname"].as_str() {
        Some(code) => {
            let is_code =
                code.len() == 5 && code.chars().all(|c| c.is_ascii_digit() || c.is_ascii_uppercase());
            is_code.then(|| code.to_owned())
        }
        // RAISE alone tells an error again.
        None => statement["message"].is_string().then(|| "P0001".to_owned()),
    }
}

fn text_of(expression: &Json) -> &str {
    expression["PLpgSQL_expr"]["query"].as_str().unwrap_or("")
}

/// `RETURN x;` loses its variable in the parser's output; `RETURN (x);` does not.
fn parenthesised_returns(definition: &str) -> String {
    let mut result = String::with_capacity(definition.len() + 16);
    let lower = definition.to_ascii_lowercase();
    let mut at = 0;
    while let Some(place) = lower[at..].find("return") {
        let start = at + place;
        let end = start + "return".len();
        let word_before = lower[..start]
            .chars()
            .next_back()
            .is_some_and(|c| c.is_alphanumeric() || c == '_');
        let rest = &definition[end..];
        let trimmed = rest.trim_start();
        let spaces = rest.len() - trimmed.len();
        let name: String = trimmed
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        let after = trimmed[name.len()..].trim_start();
        result.push_str(&definition[at..end]);
        at = end;
        let keyword = matches!(name.to_ascii_lowercase().as_str(), "next" | "query");
        if !word_before && spaces > 0 && !name.is_empty() && !keyword && after.starts_with(';') {
            result.push_str(&format!(" ({name})"));
            at = end + spaces + name.len();
        }
    }
    result.push_str(&definition[at..]);
    result
}

#[cfg(test)]
mod tests {
    use super::parenthesised_returns;

    #[test]
    fn a_returned_variable_is_put_in_parentheses() {
        assert_eq!(
            parenthesised_returns("begin RETURN held; end"),
            "begin RETURN (held); end"
        );
        assert_eq!(
            parenthesised_returns("begin return x + 1; return; end"),
            "begin return x + 1; return; end"
        );
        assert_eq!(
            parenthesised_returns("update t set a = 1 returning a;"),
            "update t set a = 1 returning a;"
        );
    }
}
