//! Values as few bytes, for rows that nobody asks for.
//!
//! In: a value. Out: bytes; and from them the same value again.
//!
//! Always true: what is unpacked is what was packed, to the bit: the scale of a numeric, the sign of a zero, the
//! unknown inside of an array.

use super::numeric::Numeric;
use super::{Array, Value};
use std::sync::Arc;

const UNKNOWN: u8 = 0;
const NULL: u8 = 1;
const FALSE: u8 = 2;
const TRUE: u8 = 3;
const INT2: u8 = 4;
const INT4: u8 = 5;
const INT8: u8 = 6;
const FLOAT4: u8 = 7;
const FLOAT8: u8 = 8;
const NUMERIC: u8 = 9;
const TEXT: u8 = 10;
const BYTEA: u8 = 11;
const UUID: u8 = 12;
const DATE: u8 = 13;
const TIME: u8 = 14;
const TIMESTAMP: u8 = 15;
const TIMESTAMP_TZ: u8 = 16;
const INTERVAL: u8 = 17;
const JSON: u8 = 18;
const JSONB: u8 = 19;
const ARRAY: u8 = 20;
const ENUM: u8 = 21;
const OPAQUE: u8 = 22;
/// From here on the first byte also says how long a text is, and then how much a small int4.
const SHORT_TEXT: u8 = 64;
const SMALL_INT4: u8 = 128;

pub fn pack(value: &Value, into: &mut Vec<u8>) {
    match value {
        Value::Unknown => into.push(UNKNOWN),
        Value::Null => into.push(NULL),
        Value::Bool(false) => into.push(FALSE),
        Value::Bool(true) => into.push(TRUE),
        Value::Int2(n) => put_int(INT2, (*n).into(), into),
        Value::Int4(n @ 0..=127) => into.push(SMALL_INT4 + *n as u8),
        Value::Int4(n) => put_int(INT4, (*n).into(), into),
        Value::Int8(n) => put_int(INT8, *n, into),
        Value::Float4(n) => put_fixed(FLOAT4, &n.to_bits().to_le_bytes(), into),
        Value::Float8(n) => put_fixed(FLOAT8, &n.to_bits().to_le_bytes(), into),
        Value::Numeric(n) => {
            into.push(NUMERIC);
            n.pack(into);
        }
        Value::Text(text) if text.len() < usize::from(SMALL_INT4 - SHORT_TEXT) => {
            put_fixed(SHORT_TEXT + text.len() as u8, text.as_bytes(), into);
        }
        Value::Text(text) => put_long(TEXT, text.as_bytes(), into),
        Value::Bytea(bytes) => put_long(BYTEA, bytes, into),
        Value::Uuid(n) => put_fixed(UUID, &n.to_le_bytes(), into),
        Value::Date(n) => put_int(DATE, (*n).into(), into),
        Value::Time(n) => put_int(TIME, *n, into),
        Value::Timestamp(n) => put_int(TIMESTAMP, *n, into),
        Value::TimestampTz(n) => put_int(TIMESTAMP_TZ, *n, into),
        Value::Interval { months, days, micros } => {
            put_int(INTERVAL, (*months).into(), into);
            put_signed((*days).into(), into);
            put_signed(*micros, into);
        }
        Value::Json(text) => put_long(JSON, text.as_bytes(), into),
        Value::Jsonb(text) => put_long(JSONB, text.as_bytes(), into),
        Value::Array(array) => {
            into.push(ARRAY);
            put_array(array, into);
        }
        Value::Enum {
            type_oid,
            order,
            label,
        } => {
            into.push(ENUM);
            put_number((*type_oid).into(), into);
            put_number((*order).into(), into);
            put_bytes(label.as_bytes(), into);
        }
        Value::Opaque { type_oid, text } => {
            into.push(OPAQUE);
            put_number((*type_oid).into(), into);
            put_bytes(text.as_bytes(), into);
        }
    }
}

/// Takes the value that comes first.
pub fn unpack(from: &mut &[u8]) -> Value {
    match take_byte(from) {
        tag @ SMALL_INT4.. => Value::Int4((tag - SMALL_INT4).into()),
        tag @ SHORT_TEXT.. => Value::Text(text(take(from, (tag - SHORT_TEXT).into()))),
        UNKNOWN => Value::Unknown,
        NULL => Value::Null,
        FALSE => Value::Bool(false),
        TRUE => Value::Bool(true),
        INT2 => Value::Int2(take_signed(from) as i16),
        INT4 => Value::Int4(take_signed(from) as i32),
        INT8 => Value::Int8(take_signed(from)),
        FLOAT4 => Value::Float4(f32::from_bits(u32::from_le_bytes(take_fixed(from)))),
        FLOAT8 => Value::Float8(f64::from_bits(u64::from_le_bytes(take_fixed(from)))),
        NUMERIC => Value::Numeric(Numeric::unpack(from)),
        TEXT => Value::Text(text(take_bytes(from))),
        BYTEA => Value::Bytea(take_bytes(from).into()),
        UUID => Value::Uuid(u128::from_le_bytes(take_fixed(from))),
        DATE => Value::Date(take_signed(from) as i32),
        TIME => Value::Time(take_signed(from)),
        TIMESTAMP => Value::Timestamp(take_signed(from)),
        TIMESTAMP_TZ => Value::TimestampTz(take_signed(from)),
        INTERVAL => Value::Interval {
            months: take_signed(from) as i32,
            days: take_signed(from) as i32,
            micros: take_signed(from),
        },
        JSON => Value::Json(text(take_bytes(from))),
        JSONB => Value::Jsonb(text(take_bytes(from))),
        ARRAY => Value::Array(Arc::new(take_array(from))),
        ENUM => Value::Enum {
            type_oid: take_number(from) as u32,
            order: take_number(from) as u32,
            label: text(take_bytes(from)),
        },
        OPAQUE => Value::Opaque {
            type_oid: take_number(from) as u32,
            text: text(take_bytes(from)),
        },
        tag => unreachable!("no value is packed as {tag}"),
    }
}

fn put_array(array: &Array, into: &mut Vec<u8>) {
    put_number(array.element.into(), into);
    put_number(array.dimensions.len() as u64, into);
    for (len, lower) in &array.dimensions {
        put_signed((*len).into(), into);
        put_signed((*lower).into(), into);
    }
    put_number(array.items.len() as u64, into);
    array.items.iter().for_each(|item| pack(item, into));
}

fn take_array(from: &mut &[u8]) -> Array {
    let element = take_number(from) as u32;
    let dimensions = (0..take_number(from)).map(|_| (take_signed(from) as i32, take_signed(from) as i32));
    let dimensions = dimensions.collect();
    let items = (0..take_number(from)).map(|_| unpack(from)).collect();
    Array {
        element,
        dimensions,
        items,
    }
}

fn put_int(tag: u8, number: i64, into: &mut Vec<u8>) {
    into.push(tag);
    put_signed(number, into);
}

fn put_fixed(tag: u8, bytes: &[u8], into: &mut Vec<u8>) {
    into.push(tag);
    into.extend_from_slice(bytes);
}

fn put_long(tag: u8, bytes: &[u8], into: &mut Vec<u8>) {
    into.push(tag);
    put_bytes(bytes, into);
}

pub fn put_bytes(bytes: &[u8], into: &mut Vec<u8>) {
    put_number(bytes.len() as u64, into);
    into.extend_from_slice(bytes);
}

/// Seven bits a byte, the lowest first; the last byte is below 128.
pub fn put_number(mut number: u64, into: &mut Vec<u8>) {
    while number >= 128 {
        into.push(number as u8 | 128);
        number >>= 7;
    }
    into.push(number as u8);
}

/// Small numbers are few bytes on both sides of zero.
pub fn put_signed(number: i64, into: &mut Vec<u8>) {
    put_number((number << 1 ^ number >> 63) as u64, into);
}

pub fn take_byte(from: &mut &[u8]) -> u8 {
    let (first, rest) = from.split_first().expect("a packed value has an end");
    *from = rest;
    *first
}

fn take<'a>(from: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, rest) = from.split_at(len);
    *from = rest;
    taken
}

fn take_fixed<const N: usize>(from: &mut &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(take(from, N));
    bytes
}

pub fn take_bytes<'a>(from: &mut &'a [u8]) -> &'a [u8] {
    let len = take_number(from) as usize;
    take(from, len)
}

pub fn take_number(from: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let byte = take_byte(from);
        number |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return number;
        }
        shift += 7;
    }
}

pub fn take_signed(from: &mut &[u8]) -> i64 {
    let number = take_number(from);
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

fn text(bytes: &[u8]) -> Arc<str> {
    std::str::from_utf8(bytes).expect("a text was packed here").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn some_text() -> impl Strategy<Value = Arc<str>> {
        prop_oneof!["\\PC{0,90}", "[ -~]{60,70}", "\\PC{300}"].prop_map(Arc::from)
    }

    fn some_numeric() -> impl Strategy<Value = Numeric> {
        let small = (any::<i64>(), 0..=super::super::numeric::MAX_SCALE);
        prop_oneof![
            small.prop_map(|(coefficient, scale)| Numeric::new(coefficient, scale)),
            (-9_999..9_999_i64, 0..4_u16).prop_map(|(coefficient, scale)| Numeric::new(coefficient, scale)),
            (any::<i128>(), 0..40_u16)
                .prop_map(|(coefficient, scale)| Numeric::from_i128(coefficient, scale)),
            Just(Numeric::NAN),
            Just(Numeric::INFINITY),
            Just(Numeric::NEG_INFINITY),
        ]
    }

    fn some_scalar() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Unknown),
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            any::<i16>().prop_map(Value::Int2),
            any::<i32>().prop_map(Value::Int4),
            (-200..200).prop_map(Value::Int4),
            any::<i64>().prop_map(Value::Int8),
            any::<u32>().prop_map(|bits| Value::Float4(f32::from_bits(bits))),
            any::<u64>().prop_map(|bits| Value::Float8(f64::from_bits(bits))),
            some_numeric().prop_map(Value::Numeric),
            some_text().prop_map(Value::Text),
            proptest::collection::vec(any::<u8>(), 0..200).prop_map(|bytes| Value::Bytea(bytes.into())),
            any::<u128>().prop_map(Value::Uuid),
            prop_oneof![any::<i32>(), Just(i32::MAX), Just(i32::MIN)].prop_map(Value::Date),
            any::<i64>().prop_map(Value::Time),
            prop_oneof![any::<i64>(), Just(i64::MAX), Just(i64::MIN)].prop_map(Value::Timestamp),
            any::<i64>().prop_map(Value::TimestampTz),
            any::<(i32, i32, i64)>().prop_map(|(months, days, micros)| Value::Interval {
                months,
                days,
                micros
            }),
            some_text().prop_map(Value::Json),
            some_text().prop_map(Value::Jsonb),
            (any::<u32>(), any::<u32>(), some_text()).prop_map(|(type_oid, order, label)| Value::Enum {
                type_oid,
                order,
                label
            }),
            (any::<u32>(), some_text()).prop_map(|(type_oid, text)| Value::Opaque { type_oid, text }),
        ]
    }

    fn some_value() -> impl Strategy<Value = Value> {
        some_scalar().prop_recursive(3, 24, 5, |inner| {
            let dimensions = proptest::collection::vec(any::<(i32, i32)>(), 0..3);
            let items = proptest::collection::vec(inner, 0..5);
            (any::<u32>(), dimensions, items).prop_map(|(element, dimensions, items)| {
                Value::Array(Arc::new(Array {
                    element,
                    dimensions,
                    items,
                }))
            })
        })
    }

    /// All of it, floats by their bits.
    fn written_out(value: &Value) -> String {
        match value {
            Value::Float4(n) => format!("float4 {:x}", n.to_bits()),
            Value::Float8(n) => format!("float8 {:x}", n.to_bits()),
            Value::Array(array) => {
                let items: Vec<String> = array.items.iter().map(written_out).collect();
                format!("{} {:?} {items:?}", array.element, array.dimensions)
            }
            other => format!("{other:?}"),
        }
    }

    proptest! {
        #[test]
        fn what_is_unpacked_is_what_was_packed(values in proptest::collection::vec(some_value(), 0..8)) {
            let mut bytes = Vec::new();
            values.iter().for_each(|value| pack(value, &mut bytes));
            let mut rest = &bytes[..];
            for value in &values {
                prop_assert_eq!(written_out(&unpack(&mut rest)), written_out(value));
            }
            prop_assert!(rest.is_empty());
        }
    }

    #[test]
    fn common_values_are_few_bytes() {
        let len = |value: Value| {
            let mut bytes = Vec::new();
            pack(&value, &mut bytes);
            bytes.len()
        };
        assert_eq!(len(Value::Int4(10)), 1);
        assert_eq!(len(Value::Int4(3_000)), 3);
        assert_eq!(len(Value::text("twenty-four letters long")), 25);
        assert_eq!(len(Value::Numeric(Numeric::new(12_345, 2))), 5);
    }
}
