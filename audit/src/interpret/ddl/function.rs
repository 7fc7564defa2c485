//! CREATE FUNCTION and CREATE PROCEDURE.

use super::DdlRun;
use super::statement_text;
use super::string_of;
use crate::interpret::run::Outcome;
use crate::sql::{self};
use crate::state::catalog::{Argument, Function};
use crate::value::oid;
use pg_query::NodeEnum;
use pg_query::protobuf::{self as pg};
use std::sync::Arc;

impl DdlRun<'_, '_> {
    pub(super) fn create_function(&self, create: &pg::CreateFunctionStmt) -> Outcome<()> {
        let (schema, name) = self.qualified(&create.funcname);
        let mut function = Function {
            oid: 0,
            schema,
            name,
            language: String::new(),
            procedure: create.is_procedure,
            kind: if create.is_procedure { 'p' } else { 'f' },
            volatility: 'v',
            strict: false,
            returns: oid::VOID,
            returns_set: false,
            arguments: Vec::new(),
            source: Arc::from(""),
            definition: Arc::from(""),
            own_settings: false,
        };
        for node in &create.parameters {
            let Some(NodeEnum::FunctionParameter(parameter)) = &node.node else {
                continue;
            };
            let Some(type_name) = &parameter.arg_type else {
                continue;
            };
            let type_oid = sql::resolve_type(&self.catalog, self.settings, type_name)
                .map_or(0, |(type_oid, _)| type_oid);
            let mode = match pg::FunctionParameterMode::try_from(parameter.mode) {
                Ok(pg::FunctionParameterMode::FuncParamOut) => 'o',
                Ok(pg::FunctionParameterMode::FuncParamInout) => 'b',
                Ok(pg::FunctionParameterMode::FuncParamVariadic) => 'v',
                Ok(pg::FunctionParameterMode::FuncParamTable) => 't',
                _ => 'i',
            };
            function.arguments.push(Argument {
                name: (!parameter.name.is_empty()).then(|| parameter.name.clone()),
                type_oid,
                mode,
                has_default: parameter.defexpr.is_some(),
            });
        }
        if let Some(returns) = &create.return_type {
            function.returns =
                sql::resolve_type(&self.catalog, self.settings, returns).map_or(0, |(type_oid, _)| type_oid);
            function.returns_set = returns.setof;
            if returns.names.last().and_then(string_of) == Some("void") {
                function.returns = oid::VOID;
            }
            if returns.names.last().and_then(string_of) == Some("trigger") {
                function.returns = oid::TRIGGER;
            }
            if returns.names.last().and_then(string_of) == Some("event_trigger") {
                function.returns = oid::EVENT_TRIGGER;
            }
        }
        for node in &create.options {
            let Some(NodeEnum::DefElem(option)) = &node.node else {
                continue;
            };
            let argument = option.arg.as_ref().and_then(|node| node.node.as_ref());
            match (option.defname.as_str(), argument) {
                ("language", Some(NodeEnum::String(language))) => {
                    function.language = language.sval.to_ascii_lowercase()
                }
                ("volatility", Some(NodeEnum::String(volatility))) => {
                    function.volatility = volatility.sval.chars().next().unwrap_or('v').to_ascii_lowercase();
                }
                ("strict", Some(NodeEnum::Boolean(strict))) => function.strict = strict.boolval,
                ("as", Some(NodeEnum::List(list))) => {
                    function.source = Arc::from(list.items.first().and_then(string_of).unwrap_or(""));
                }
                ("security" | "set", _) => function.own_settings = true,
                _ => {}
            }
        }
        if let Some(text) = statement_text(NodeEnum::CreateFunctionStmt(Box::new(create.clone()))) {
            function.definition = Arc::from(text);
        }
        self.edit(|editor| {
            function.oid = editor.new_id(&function.schema, &function.name);
            editor.put_function(function);
        });
        Ok(())
    }
}
