//! Calls of functions, and which of them are aggregates or windows.

use crate::sql::analyze::{Analyzer, Collated, Result, Typed, Unmodelled, strings_of, unmodelled};
use crate::sql::plan::Expr;
use crate::value::{self, CastKind, FunctionKind, TypeOid, Volatility, oid};
use pg_query::NodeEnum;
use pg_query::protobuf::{self as pg};

impl Analyzer<'_> {
    pub(super) fn func_call(&mut self, call: &pg::FuncCall) -> Result<Typed> {
        let names = strings_of(&call.funcname);
        let Some(name) = names.last().map(|name| (*name).to_owned()) else {
            return unmodelled("function");
        };
        let schema = (names.len() > 1).then(|| names[0].to_owned());
        let built_in = schema.as_deref().is_none_or(|schema| schema == "pg_catalog");

        if built_in && matches!(name.as_str(), "nextval" | "currval" | "lastval" | "setval") {
            // Here the value is whatever the answer says.
            self.touches.draws_everything |= matches!(name.as_str(), "nextval" | "setval");
            self.mark_volatile();
            return Ok(self.unknown(oid::INT8));
        }
        if call
            .args
            .iter()
            .any(|argument| matches!(argument.node, Some(NodeEnum::NamedArgExpr(_))))
        {
            self.raw_call(&name, schema.as_deref());
            return unmodelled("named_arguments");
        }
        if let Some(over) = &call.over {
            let kept = (
                self.levels.len(),
                self.level().windows.len(),
                self.level().aggregates.len(),
            );
            let windowed = match built_in {
                true => self.window_call(&name, call, over),
                false => unmodelled("window_function"),
            };
            return windowed.or_else(|Unmodelled(reason)| {
                self.levels.truncate(kept.0);
                self.level().windows.truncate(kept.1);
                self.level().aggregates.truncate(kept.2);
                self.note(reason);
                Ok(self.unknown(self.window_type(&name, call)))
            });
        }
        let path = &self.settings.search_path;
        let users = self.catalog.find_functions(schema.as_deref(), &name, path);
        if !users.is_empty() {
            let known = self
                .types()
                .resolve_function(&name, &vec![oid::UNKNOWN; call.args.len()])
                .is_some();
            if !(built_in && known && schema.is_none()) {
                let users: Vec<_> = users.into_iter().cloned().collect();
                return self.user_function(&name, users, call);
            }
        }
        if !built_in {
            self.raw_call(&name, schema.as_deref());
            return unmodelled(format!("function_{name}"));
        }
        if call.func_variadic {
            return unmodelled("variadic_call");
        }

        // What stands inside an aggregate may not hold another one of the same level.
        let arguments = self.exprs(&call.args)?;
        let oids: Vec<TypeOid> = arguments.iter().map(|argument| argument.oid).collect();
        if oids.contains(&0) {
            let is_aggregate = self.is_aggregate(&name);
            if !is_aggregate {
                return unmodelled(format!("argument_of_{name}"));
            }
        }
        if call.agg_star || self.is_aggregate(&name) {
            return self.aggregate(&name, call, arguments, &oids);
        }
        let Some(resolved) = self.types().resolve_function(&name, &oids) else {
            // name(x) may also be a cast: int4('1').
            if let (Some(target), [_]) = (value::type_by_name(&name), oids.as_slice()) {
                let argument = arguments.into_iter().next().expect("one argument");
                return self.coerce(argument, target, -1, CastKind::Explicit);
            }
            self.raw_call(&name, schema.as_deref());
            return unmodelled(format!("function_{name}"));
        };
        match resolved.kind {
            FunctionKind::Plain => {}
            FunctionKind::Set => return unmodelled(format!("set_returning_{name}")),
            _ => return unmodelled(format!("function_{name}")),
        }
        let mut collation = Collated::Default;
        let mut cast = Vec::new();
        for (argument, target) in arguments.into_iter().zip(&resolved.arguments) {
            collation = self.combine(collation, argument.collation);
            cast.push(self.coerce(argument, *target, -1, CastKind::Implicit)?.expr);
        }
        if resolved.volatility == Volatility::Volatile {
            self.mark_volatile();
            return Ok(self.unknown(resolved.result));
        }
        if !resolved.function.is_modelled() {
            self.note(format!("function_{name}"));
            return Ok(self.unknown(resolved.result));
        }
        let function = self.collated(resolved.function, collation);
        let expr = Expr::Call {
            function,
            arguments: cast,
        };
        self.keep_constant(&expr);
        Ok(Typed {
            expr,
            oid: resolved.result,
            type_modifier: -1,
            collation,
        })
    }

    pub(in crate::sql::analyze) fn is_aggregate(&self, name: &str) -> bool {
        let kind = |count: usize| {
            let inputs = vec![oid::INT4; count];
            self.types()
                .resolve_function(name, &inputs)
                .map(|resolved| resolved.kind)
        };
        matches!(
            name,
            "count"
                | "sum"
                | "avg"
                | "min"
                | "max"
                | "bool_and"
                | "bool_or"
                | "every"
                | "string_agg"
                | "array_agg"
                | "json_agg"
                | "jsonb_agg"
                | "json_object_agg"
                | "jsonb_object_agg"
                | "stddev"
                | "variance"
                | "bit_and"
                | "bit_or"
                | "stddev_pop"
                | "stddev_samp"
                | "var_pop"
                | "var_samp"
        ) || kind(1) == Some(FunctionKind::Aggregate)
            || kind(2) == Some(FunctionKind::Aggregate)
    }

    pub(super) fn window_type(&self, name: &str, call: &pg::FuncCall) -> TypeOid {
        match name {
            "row_number" | "rank" | "dense_rank" | "count" => oid::INT8,
            _ if call.args.is_empty() => self
                .types()
                .resolve_function(name, &[])
                .map_or(0, |resolved| resolved.result),
            _ => 0,
        }
    }

    pub(in crate::sql::analyze) fn mark_volatile(&mut self) {
        self.volatile = true;
        for level in &mut self.levels {
            level.volatile = true;
        }
    }
}
