//! json and jsonb.
//!
//! json keeps its text, so what is taken out of one keeps its spelling; jsonb is canonical.

use super::{array, int4, mistyped, text};
use crate::value::call::{Call, Implementation};
use crate::value::json::{Json, parse_jsonb, push_json_string};
use crate::value::{Array, Numeric, SqlError, Value, datetime, encode_text};

type Outcome = Result<Value, SqlError>;

fn document(arguments: &[Value], index: usize) -> Result<Json, SqlError> {
    match arguments.get(index) {
        Some(Value::Jsonb(text)) => parse_jsonb(text),
        _ => Err(mistyped()),
    }
}

pub(crate) fn jsonb(value: Option<&Json>) -> Value {
    value.map_or(Value::Null, |json| Value::Jsonb(json.print().into()))
}

fn bare(value: Option<&Json>) -> Value {
    value.and_then(Json::as_text).map_or(Value::Null, Value::text)
}

/// An element of a jsonb; a scalar at the top counts as an array of itself.
fn element(json: &Json, index: i32) -> Option<&Json> {
    match json {
        Json::Array(_) => json.at(index.into()),
        Json::Object(_) => None,
        scalar => matches!(index, 0 | -1).then_some(scalar),
    }
}

/// A step of a path: a key of an object, or an index of an array.
fn follow<'a>(json: &'a Json, path: &Array) -> Result<Option<&'a Json>, SqlError> {
    let mut at = Some(json);
    for step in &path.items {
        let Value::Text(step) = step else { return Ok(None) };
        at = match at {
            Some(object @ Json::Object(_)) => object.get(step),
            Some(array @ Json::Array(_)) => match step.parse::<i32>() {
                Ok(index) => array.at(index.into()),
                // The server's reader of numbers takes blanks and signs that this one does not.
                Err(_) if step.bytes().all(|b| b.is_ascii_alphabetic()) => None,
                Err(_) => return Err(SqlError::not_modelled("unusual index in a json path")),
            },
            _ => None,
        };
    }
    Ok(at)
}

/// to_jsonb of one value.
pub(crate) fn from_sql(value: &Value, call: &Call<'_>) -> Result<Json, SqlError> {
    let odd = || SqlError::not_modelled("json of this value");
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Int2(value) => Json::Number(Numeric::from(i64::from(*value))),
        Value::Int4(value) => Json::Number(Numeric::from(i64::from(*value))),
        Value::Int8(value) => Json::Number(Numeric::from(*value)),
        Value::Numeric(value) if value.is_nan() || value.is_infinite() => Json::String(value.to_string()),
        Value::Numeric(value) => Json::Number(value.clone()),
        Value::Float4(_) | Value::Float8(_) => {
            let printed = encode_text(value, call.context).ok_or_else(odd)?;
            match printed.as_str() {
                "NaN" | "Infinity" | "-Infinity" => Json::String(printed),
                number => Json::Number(Numeric::parse(number)?),
            }
        }
        Value::Text(value) => Json::String(value.to_string()),
        Value::Enum { label, .. } => Json::String(label.to_string()),
        Value::Uuid(_) | Value::Time(_) | Value::Interval { .. } | Value::Bytea(_) => {
            Json::String(encode_text(value, call.context).ok_or_else(odd)?)
        }
        Value::Date(value) => Json::String(datetime::print_date(*value)),
        Value::Timestamp(value) => {
            Json::String(datetime::print_timestamp(*value, None).replacen(' ', "T", 1))
        }
        Value::Jsonb(text) | Value::Json(text) => parse_jsonb(text)?,
        Value::Array(array) if array.dimensions.len() <= 1 => {
            let items: Result<Vec<Json>, SqlError> =
                array.items.iter().map(|item| from_sql(item, call)).collect();
            Json::Array(items?)
        }
        _ => return Err(odd()),
    })
}

/// One key of json_build_object: text that is not NULL.
pub(crate) fn object_key(value: &Value, call: &Call<'_>) -> Result<String, SqlError> {
    match value {
        Value::Null => Err(SqlError::not_modelled("NULL as an object key")),
        Value::Json(_) | Value::Jsonb(_) | Value::Array(_) => {
            Err(SqlError::not_modelled("container as an object key"))
        }
        Value::Bool(value) => Ok(if *value { "true" } else { "false" }.to_owned()),
        Value::Timestamp(value) => Ok(datetime::print_timestamp(*value, None).replacen(' ', "T", 1)),
        Value::TimestampTz(_) => Err(SqlError::not_modelled("timestamptz as an object key")),
        other => {
            encode_text(other, call.context).ok_or_else(|| SqlError::not_modelled("text of an object key"))
        }
    }
}

fn build_object(a: &[Value], call: &Call<'_>) -> Outcome {
    if !a.len().is_multiple_of(2) {
        return Err(SqlError::invalid_parameter(
            "argument list must have even number of elements",
        ));
    }
    let mut members = Vec::with_capacity(a.len() / 2);
    for pair in a.chunks(2) {
        members.push((object_key(&pair[0], call)?, from_sql(&pair[1], call)?));
    }
    Ok(jsonb(Some(&Json::object(members))))
}

/// The text of one value inside a json (not jsonb) that is being built.
pub(crate) fn json_text(value: &Value, call: &Call<'_>) -> Result<String, SqlError> {
    match value {
        Value::Json(text) | Value::Jsonb(text) => Ok(text.to_string()),
        Value::Float4(_) | Value::Float8(_) => {
            let printed =
                encode_text(value, call.context).ok_or_else(|| SqlError::not_modelled("json of a float"))?;
            let special = matches!(printed.as_str(), "NaN" | "Infinity" | "-Infinity");
            Ok(if special {
                format!("\"{printed}\"")
            } else {
                printed
            })
        }
        Value::Array(_) => Err(SqlError::not_modelled("json of an array")),
        other => Ok(from_sql(other, call)?.print()),
    }
}

fn build_json_object(a: &[Value], call: &Call<'_>) -> Outcome {
    if !a.len().is_multiple_of(2) {
        return Err(SqlError::invalid_parameter(
            "argument list must have even number of elements",
        ));
    }
    let mut out = String::from("{");
    for (index, pair) in a.chunks(2).enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        push_json_string(&mut out, &object_key(&pair[0], call)?);
        out.push_str(" : ");
        out.push_str(&json_text(&pair[1], call)?);
    }
    out.push('}');
    Ok(Value::Json(out.into()))
}

fn concatenate(left: Json, right: Json) -> Outcome {
    let joined = match (left, right) {
        (Json::Object(mut left), Json::Object(right)) => {
            left.extend(right);
            Json::object(left)
        }
        (Json::Object(_), Json::Array(_)) | (Json::Array(_), Json::Object(_)) => {
            return Err(SqlError::not_modelled("concatenation of an object and an array"));
        }
        (Json::Object(_), _) | (_, Json::Object(_)) => {
            return Err(SqlError::not_modelled("concatenation of an object and a scalar"));
        }
        (left, right) => {
            let items = |json: Json| match json {
                Json::Array(items) => items,
                scalar => vec![scalar],
            };
            Json::Array(items(left).into_iter().chain(items(right)).collect())
        }
    };
    Ok(jsonb(Some(&joined)))
}

fn delete_key(json: Json, key: &str) -> Outcome {
    let kept = match json {
        Json::Object(members) => Json::Object(members.into_iter().filter(|(k, _)| k != key).collect()),
        Json::Array(items) => Json::Array(
            items
                .into_iter()
                .filter(|i| !matches!(i, Json::String(s) if s == key))
                .collect(),
        ),
        _ => return Err(SqlError::invalid_parameter("cannot delete from scalar")),
    };
    Ok(jsonb(Some(&kept)))
}

fn delete_index(json: Json, index: i32) -> Outcome {
    match json {
        Json::Array(mut items) => {
            let at = if index < 0 {
                items.len() as i64 + i64::from(index)
            } else {
                index.into()
            };
            if (0..items.len() as i64).contains(&at) {
                items.remove(at as usize);
            }
            Ok(jsonb(Some(&Json::Array(items))))
        }
        Json::Object(_) => Err(SqlError::invalid_parameter(
            "cannot delete from object using integer index",
        )),
        _ => Err(SqlError::invalid_parameter("cannot delete from scalar")),
    }
}

/// jsonb_set along keys of objects and indexes that exist.
fn set_path(json: &mut Json, path: &[Value], new: &Json, create: bool) -> Result<(), SqlError> {
    let odd = || SqlError::not_modelled("unusual path of jsonb_set");
    let Some((Value::Text(step), rest)) = path.split_first() else {
        return Err(odd());
    };
    let slot = match json {
        Json::Object(members) => match members.iter_mut().find(|(key, _)| **key == **step) {
            Some((_, slot)) => slot,
            None => {
                if rest.is_empty() && create {
                    let mut grown = std::mem::take(members);
                    grown.push((step.to_string(), new.clone()));
                    *json = Json::object(grown);
                }
                return Ok(());
            }
        },
        Json::Array(items) => {
            let index: usize = step.parse().map_err(|_| odd())?;
            items.get_mut(index).ok_or_else(odd)?
        }
        // Below a scalar there is nothing to set.
        _ => return Ok(()),
    };
    match rest.is_empty() {
        true => *slot = new.clone(),
        false => set_path(slot, rest, new, create)?,
    }
    Ok(())
}

fn jsonb_set(a: &[Value], _: &Call<'_>) -> Outcome {
    let (mut json, path, new) = (document(a, 0)?, array(a, 1)?, document(a, 2)?);
    let create = match a.get(3) {
        None => true,
        Some(Value::Bool(create)) => *create,
        Some(_) => return Err(mistyped()),
    };
    if !matches!(json, Json::Object(_) | Json::Array(_)) {
        return Err(SqlError::invalid_parameter("cannot set path in scalar"));
    }
    if path.dimensions.len() > 1 {
        return Err(SqlError::not_modelled("unusual path of jsonb_set"));
    }
    if !path.items.is_empty() {
        set_path(&mut json, &path.items, &new, create)?;
    }
    Ok(jsonb(Some(&json)))
}

fn exists(json: &Json, key: &str) -> bool {
    match json {
        Json::Object(_) => json.get(key).is_some(),
        Json::Array(items) => items
            .iter()
            .any(|item| matches!(item, Json::String(s) if s == key)),
        Json::String(s) => s == key,
        _ => false,
    }
}

/// From a json document: scalars only, since a container keeps its white space.
fn json_scalar(a: &[Value], take: impl Fn(&Json) -> Option<Json>, as_text: bool) -> Outcome {
    let Value::Json(text) = &a[0] else {
        return Err(mistyped());
    };
    let json = parse_jsonb(text)?;
    // Repeated keys: json takes the last one, as jsonb does.
    match take(&json) {
        None => Ok(Value::Null),
        Some(Json::Object(_) | Json::Array(_)) => {
            Err(SqlError::not_modelled("container taken out of a json"))
        }
        Some(Json::Number(_)) => Err(SqlError::not_modelled("number taken out of a json")),
        Some(Json::String(_)) if !as_text => Err(SqlError::not_modelled("string taken out of a json")),
        Some(scalar) if as_text => Ok(bare(Some(&scalar))),
        Some(scalar) => Ok(Value::Json(scalar.print().into())),
    }
}

fn strip_nulls(json: &Json) -> Json {
    match json {
        Json::Object(members) => Json::Object(
            members
                .iter()
                .filter(|(_, v)| *v != Json::Null)
                .map(|(k, v)| (k.clone(), strip_nulls(v)))
                .collect(),
        ),
        Json::Array(items) => Json::Array(items.iter().map(strip_nulls).collect()),
        scalar => scalar.clone(),
    }
}

pub fn implementation(source: &str) -> Option<Implementation> {
    Some(match source {
        "jsonb_object_field" => |a, _| Ok(jsonb(document(a, 0)?.get(text(a, 1)?))),
        "jsonb_object_field_text" => |a, _| Ok(bare(document(a, 0)?.get(text(a, 1)?))),
        "jsonb_array_element" => |a, _| Ok(jsonb(element(&document(a, 0)?, int4(a, 1)?))),
        "jsonb_array_element_text" => |a, _| Ok(bare(element(&document(a, 0)?, int4(a, 1)?))),
        "jsonb_extract_path" => |a, _| match &a[1..] {
            [Value::Array(path)] => Ok(jsonb(follow(&document(a, 0)?, path)?)),
            steps => Ok(jsonb(follow(
                &document(a, 0)?,
                &Array::vector(25, steps.to_vec()),
            )?)),
        },
        "jsonb_extract_path_text" => |a, _| match &a[1..] {
            [Value::Array(path)] => Ok(bare(follow(&document(a, 0)?, path)?)),
            steps => Ok(bare(follow(
                &document(a, 0)?,
                &Array::vector(25, steps.to_vec()),
            )?)),
        },
        "json_object_field" => |a, _| {
            let key = text(a, 1)?;
            json_scalar(a, |json| json.get(key).cloned(), false)
        },
        "json_object_field_text" => |a, _| {
            let key = text(a, 1)?;
            json_scalar(a, |json| json.get(key).cloned(), true)
        },
        "json_array_element" => |a, _| {
            let index = int4(a, 1)?;
            json_scalar(a, |json| json.at(index.into()).cloned(), false)
        },
        "json_array_element_text" => |a, _| {
            let index = int4(a, 1)?;
            json_scalar(a, |json| json.at(index.into()).cloned(), true)
        },
        "jsonb_contains" => |a, _| Ok(Value::Bool(contains(&document(a, 0)?, &document(a, 1)?))),
        "jsonb_contained" => |a, _| Ok(Value::Bool(contains(&document(a, 1)?, &document(a, 0)?))),
        "jsonb_exists" => |a, _| Ok(Value::Bool(exists(&document(a, 0)?, text(a, 1)?))),
        "jsonb_exists_any" => |a, _| {
            let (json, keys) = (document(a, 0)?, array(a, 1)?);
            let has = |key: &Value| matches!(key, Value::Text(key) if exists(&json, key));
            Ok(Value::Bool(keys.items.iter().any(has)))
        },
        "jsonb_exists_all" => |a, _| {
            let (json, keys) = (document(a, 0)?, array(a, 1)?);
            let has = |key: &Value| key.is_null() || matches!(key, Value::Text(key) if exists(&json, key));
            Ok(Value::Bool(keys.items.iter().all(has)))
        },
        "jsonb_concat" => |a, _| concatenate(document(a, 0)?, document(a, 1)?),
        "jsonb_delete_idx" => |a, _| delete_index(document(a, 0)?, int4(a, 1)?),
        "jsonb_set" => jsonb_set,
        "jsonb_delete" => |a, _| delete_key(document(a, 0)?, text(a, 1)?),
        "jsonb_array_length" => |a, _| match document(a, 0)? {
            Json::Array(items) => Ok(Value::Int4(items.len() as i32)),
            Json::Object(_) => Err(SqlError::invalid_parameter(
                "cannot get array length of a non-array",
            )),
            _ => Err(SqlError::invalid_parameter("cannot get array length of a scalar")),
        },
        "jsonb_typeof" => |a, _| Ok(Value::text(document(a, 0)?.type_name())),
        "json_typeof" => |a, _| match &a[0] {
            Value::Json(text) => Ok(Value::text(match text.trim_start().bytes().next() {
                Some(b'{') => "object",
                Some(b'[') => "array",
                Some(b'"') => "string",
                Some(b't' | b'f') => "boolean",
                Some(b'n') => "null",
                _ => "number",
            })),
            _ => Err(mistyped()),
        },
        "jsonb_strip_nulls" => |a, _| match a.len() {
            1 => Ok(jsonb(Some(&strip_nulls(&document(a, 0)?)))),
            _ => Err(mistyped()),
        },
        "to_jsonb" => |a, c| Ok(jsonb(Some(&from_sql(&a[0], c)?))),
        "to_json" => |a, c| Ok(Value::Json(json_text(&a[0], c)?.into())),
        "jsonb_build_object" => build_object,
        "jsonb_build_object_noargs" => |_, _| Ok(Value::Jsonb("{}".into())),
        "jsonb_build_array" => |a, c| {
            let items: Result<Vec<Json>, SqlError> = a.iter().map(|item| from_sql(item, c)).collect();
            Ok(jsonb(Some(&Json::Array(items?))))
        },
        "jsonb_build_array_noargs" => |_, _| Ok(Value::Jsonb("[]".into())),
        "json_build_object" => build_json_object,
        "json_build_object_noargs" => |_, _| Ok(Value::Json("{}".into())),
        _ => return None,
    })
}

/// Containment needs containers of the same kind at the top (or an array that contains a scalar).
fn contains(large: &Json, small: &Json) -> bool {
    large.contains(small)
}
