//! Interesting values of each type, as literals.

use pgassay_audit::value::interval::Interval;
use pgassay_audit::value::{TypeOid, Types, datetime, oid};

/// The types that expressions are made of.
pub const TYPES: &[TypeOid] = &[
    oid::BOOL,
    oid::INT2,
    oid::INT4,
    oid::INT8,
    oid::FLOAT4,
    oid::FLOAT8,
    oid::NUMERIC,
    oid::TEXT,
    oid::VARCHAR,
    oid::BPCHAR,
    oid::BYTEA,
    oid::UUID,
    oid::DATE,
    oid::TIME,
    oid::TIMESTAMP,
    oid::TIMESTAMPTZ,
    oid::INTERVAL,
    oid::JSONB,
    oid::JSON,
    oid::INT4_ARRAY,
    oid::TEXT_ARRAY,
    oid::NUMERIC_ARRAY,
];

pub fn of(type_oid: TypeOid) -> &'static [&'static str] {
    match type_oid {
        oid::BOOL => &["t", "f", "true", "no", "1", " off ", "o", "tr", "yes!"],
        oid::INT2 => &["0", "1", "-1", "7", "2", "32767", "-32768", "32768", " 42 ", "x", ""],
        oid::INT4 => &[
            "0", "1", "-1", "2", "3", "5", "7", "10", "100", "2147483647", "-2147483648", "2147483648", "46341", "1.5",
            "+9", "-", "12345", "6",
        ],
        oid::INT8 => &[
            "0", "1", "-1", "2", "3", "10", "9223372036854775807", "-9223372036854775808", "9223372036854775808",
            "4294967296", "3037000500", "123456789012", "-5",
        ],
        oid::FLOAT4 => &[
            "0", "-0", "1", "0.1", "1.5", "-2.5", "1e10", "3.4e38", "1e-45", "1e-46", "NaN", "Infinity", "-Infinity",
            "16777216", "1e6", "123456", "0.0001", "7", "1e39", "abc", "0.5", "9.99999e-5", "33554432",
        ],
        oid::FLOAT8 => &[
            "0", "-0", "1", "0.1", "0.2", "1.5", "2.5", "-2.5", "3.5", "1e15", "123456789012345", "1e23", "5e22",
            "1.7976931348623157e308", "5e-324", "1e-324", "1e309", "NaN", "Infinity", "-Infinity", "9007199254740993",
            "1e-5", "0.3", "1e100", "-1e-10", "2147483647.5", "9223372036854775807", "7", "3", "2", "10", "-1",
            "0.5", "4.35", "1234.5678", "1e22", "8.5e17", "32767.5", "1e-4",
        ],
        oid::NUMERIC => &[
            "0", "0.00", "1", "-1", "1.0", "1.00", "0.1", "-0.5", "1.5", "2.5", "3", "7", "10", "99.995", "1234.5678",
            "0.000001", "1e-20", "1e20", "123456789012345678901234567890", "-98765432109876543210.0123456789",
            "9223372036854775807", "9223372036854775808", "2147483648", "NaN", "Infinity", "-Infinity", "1e1000",
            "1e-1000", "1e131071", "1e131072", "1e-16383", "1e-16384", "9999", "10000", "0.0001", "99999999.99999999",
            "1.23456789012345678901234567890", "3.14", "1e400", "0.3333333333333333", "x1", "1..2", "32767.5", "-32768.5",
            "12345678.12345678", "4", "2", "16", "1e-7", "0.9999", "1000000007", "5e-5",
        ],
        oid::TEXT | oid::VARCHAR => &[
            "", "a", "b", "A", "abc", "ABC", "abcabc", "hello world", " lead", "trail ", "  ", "%", "_", "a%", "%b%",
            "a_c", "\\", "\\%", "äöü", "日本語", "ab", "c", "x,y,z", ",", "a,b,,c", "Zebra", "null", "1", "12", "-3.5",
            "2024-01-31", "day", "month", "year", "t", "HELLO wOrLd foo-bar", "b%", "a\\", "%\\", "___", "hour", "week",
            "quarter", "decade", "century", "millennium", "second", "minute", "epoch", "dow", "isodow", "doy", "isoyear",
            "milliseconds", "microseconds", "YYYY-MM-DD", "YYYY-MM-DD HH24:MI:SS", "UTC", "hex", "a.b", "é", "{1,2}",
            "{\"a\":1}", "aXbXc", "X", "\t", "a\nb", "it's", "😀", "a😀b", "_", "%_%", "ab%", "%c", "DD/MM/YYYY",
            "2024-02-29 13:14:15", "HH12:MI:SS.MS", "US",
        ],
        oid::BPCHAR => &["", "a", "a  ", "abc", "abc ", " x", "äö ", "  ", "A", "b"],
        oid::BYTEA => &["", "\\x", "\\x00", "\\xdeadbeef", "abc", "a\\000b", "\\\\", "\\xff", "\\x0", "\\xzz", "a\\b", "\\x616263"],
        oid::UUID => &[
            "00000000-0000-0000-0000-000000000000",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
            "not-a-uuid",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1",
        ],
        oid::DATE => &[
            "2000-01-01", "1970-01-01", "2024-02-29", "2023-02-28", "2023-02-29", "1999-12-31", "0001-01-01",
            "0001-12-31 BC", "4714-11-24 BC", "4714-11-23 BC", "5874897-12-31", "5874898-01-01", "infinity",
            "-infinity", "epoch", "2024-13-01", "2024-01-32", "2024-1-5", "2020-12-31", "2021-01-03", "2015-06-30", "",
            "0000-01-01", "294277-01-01", "1900-03-01", "2001-01-01", "0100-02-28 BC", "2024-01-31",
        ],
        oid::TIME => &[
            "00:00:00", "12:34:56", "23:59:59.999999", "24:00:00", "24:00:01", "01:02", "12:34:56.7891234", "25:00",
            "12:60", "23:59:60", "00:00:00.0000005", "00:00:00.0000015", "13:14:15.5",
        ],
        oid::TIMESTAMP => &[
            "2000-01-01 00:00:00", "1970-01-01 00:00:00", "2024-02-29 12:34:56.789", "2024-01-31 23:59:59.999999",
            "1999-12-31 24:00:00", "0001-01-01 00:00:00", "0044-03-15 10:00:00 BC", "4714-11-24 00:00:00 BC",
            "294276-12-31 23:59:59.999999", "294277-01-01 00:00:00", "infinity", "-infinity", "epoch",
            "2024-03-31T08:15", "2024-03-31 08:15:00+02", "2021-01-03 10:20:30.123456", "2020-12-31 00:00:00.5",
            "2024-02-30 00:00:00", "2024-01-01 25:00:00", "2015-06-30 23:59:60", "2023-03-15", "2024-12-30 01:01:01",
            "1900-01-01 00:00:00.000001", "2024-05-05 05:05:05.5555555",
        ],
        oid::TIMESTAMPTZ => &[
            "2000-01-01 00:00:00+00", "2024-02-29 12:34:56.789+05:30", "2024-01-31 23:59:59.999999-08",
            "1970-01-01 00:00:00Z", "infinity", "-infinity", "epoch", "2024-03-31 08:15:00", "2021-01-03 10:20:30.123456 UTC",
            "4714-11-24 00:00:00+00 BC", "294276-12-31 23:59:59.999999+00", "2024-03-31T08:15:00+0200",
            "2020-02-29 01:00:00-03:30:15", "2024-01-01 00:00:00+16", "1999-12-31 23:59:59.5+00", "2023-03-15",
        ],
        oid::INTERVAL => &[
            "0", "1 day", "-1 day", "1 month", "1 year 2 months 3 days 04:05:06.789", "-1 year -2 months +3 days -04:05:06",
            "30 days", "24:00:00", "1 day 24:00:00", "100 years", "1 week", "90 minutes", "1.5 seconds", "-00:00:00.000001",
            "2 hours ago", "1 day 2 hours 3 minutes 4 seconds", "12 months", "99999 hours", "1 millisecond", "5 microseconds",
            "2147483647 days", "178956970 years", "1 mon -30 days", "10", "3 days 04:05", "-5 days 10:00:00", "1 decade", "",
            "6 months", "-13 months", "36:00:00",
        ],
        oid::JSONB | oid::JSON => &[
            "{}", "[]", "null", "true", "1", "1.0", "1.50", "-0", "\"a\"", "\"a\\u00e4\\n\"", "{\"a\": 1}",
            "{\"b\":2,\"a\":[1,2,{\"c\":null}]}", "{\"a\":1,\"a\":2}", "[1, \"x\", null, 2.50]", "{\"aa\":1,\"b\":{\"c\":\"d\"}}",
            "[1,2", "{\"a\"}", "\"\\u0000\"", "\"\\ud83d\\ude00\"", "1e5", "1E-3", "01", "[[1],[2,3]]", "\"\\ud83d\"",
            "{\"a\": null, \"b\": {\"c\": null}}", " [1 , 2 ] ", "", "nul", "{\"k\": \"v\", \"1\": 5}", "\"\"", "[\"a\", \"b\"]",
        ],
        oid::INT4_ARRAY => {
            &["{}", "{1}", "{1,2,3}", "{3,2,1}", "{NULL}", "{1,NULL,2}", "{1,2", "{a}", " { 1 , 2 } ", "{1,2,3,2,1}", "{2,3}", "{5}"]
        }
        oid::TEXT_ARRAY => &[
            "{}", "{a}", "{a,b,c}", "{\"a b\",\"c,d\",\"\",NULL,\"NULL\"}", "{\"a\\\"b\",\"c\\\\d\"}", "{ a , b }", "{a,}", "{a}b",
            "{null}", "{\"{\"}", "{0}", "{a,b}", "{b,0}", "{c}", "{a,0}", "{1}", "{b,c}",
        ],
        oid::NUMERIC_ARRAY => &["{}", "{1.0,2.50}", "{1,2.5}", "{NaN,NULL}", "{0.1}"],
        _ => &[],
    }
}

/// Units of date_trunc and extract.
pub const UNITS: &[&str] = &[
    "microseconds", "milliseconds", "second", "minute", "hour", "day", "week", "month", "quarter", "year", "decade",
    "century", "millennium", "epoch", "dow", "isodow", "doy", "isoyear", "YEAR", "years", "timezone",
];

/// Templates of to_char and to_date.
pub const TEMPLATES: &[&str] = &[
    "YYYY-MM-DD", "YYYY-MM-DD HH24:MI:SS", "DD/MM/YYYY", "HH12:MI", "YYYY", "MM", "SS.MS", "HH24:MI:SS.US", "YYYYMMDD",
    "DD.MM.YYYY", "MM/DD/YYYY, HH24", "", "Mon",
];

/// An interesting literal, or one made at random.
pub fn random(random: &mut fastrand::Rng, type_oid: TypeOid) -> String {
    let fixed = of(type_oid);
    if random.u32(..100) < 45 {
        return fixed[random.usize(..fixed.len())].to_owned();
    }
    let digits = |random: &mut fastrand::Rng, most: usize| -> String {
        (0..random.usize(1..=most)).map(|_| random.digit(10)).collect()
    };
    let sign = |random: &mut fastrand::Rng| if random.u32(..3) == 0 { "-" } else { "" };
    match type_oid {
        oid::INT2 => format!("{}", random.i16(..)),
        oid::INT4 => format!("{}", random.i32(..) >> random.u32(..31)),
        oid::INT8 => format!("{}", random.i64(..) >> random.u32(..63)),
        oid::FLOAT4 if random.bool() => format!("{:e}", f32::from_bits(random.u32(..))),
        oid::FLOAT8 if random.bool() => format!("{:e}", f64::from_bits(random.u64(..))),
        oid::FLOAT4 | oid::FLOAT8 => format!("{}{}.{}", sign(random), digits(random, 6), digits(random, 4)),
        oid::NUMERIC => match random.u32(..4) {
            0 => format!("{}{}", sign(random), digits(random, 24)),
            1 => format!("{}{}.{}", sign(random), digits(random, 5), digits(random, 4)),
            2 => format!("{}{}.{}", sign(random), digits(random, 30), digits(random, 30)),
            _ => format!("{}0.{}{}", sign(random), "0".repeat(random.usize(..12)), digits(random, 12)),
        },
        oid::TEXT | oid::VARCHAR | oid::BPCHAR => {
            let alphabet = ['a', 'b', 'A', ' ', '%', '_', '\\', 'ä', '日', ',', '1', '-'];
            (0..random.usize(..9)).map(|_| alphabet[random.usize(..alphabet.len())]).collect()
        }
        oid::UUID => format!("{:032x}", random.u128(..)),
        oid::DATE => datetime::print_date(random.i32(-800_000..1_200_000)),
        oid::TIME => datetime::print_time(random.i64(0..86_400_000_000)),
        oid::TIMESTAMP => datetime::print_timestamp(random.i64(-70_000_000_000_000_000..90_000_000_000_000_000), None),
        oid::TIMESTAMPTZ => {
            let zone = random.i32(-52..53) * 900;
            datetime::print_timestamp(random.i64(-50_000_000_000_000_000..50_000_000_000_000_000), Some(zone))
        }
        oid::INTERVAL => Interval {
            months: random.i32(-50..50) * random.i32(0..2),
            days: random.i32(-99..99) * random.i32(0..2),
            micros: random.i64(-999_999_999_999..999_999_999_999) * random.i64(0..2),
        }
        .print(),
        oid::INT4_ARRAY => {
            let items: Vec<String> = (0..random.usize(..5)).map(|_| random.i32(-3..4).to_string()).collect();
            format!("{{{}}}", items.join(","))
        }
        _ => fixed[random.usize(..fixed.len())].to_owned(),
    }
}

/// Every literal with its type.
pub fn all() -> impl Iterator<Item = (TypeOid, &'static str)> {
    TYPES.iter().flat_map(|type_oid| of(*type_oid).iter().map(|literal| (*type_oid, *literal)))
}

/// `'…'::type` in SQL. The type goes by its internal name, so that `bpchar` has no length.
pub fn typed(type_oid: TypeOid, literal: &str) -> String {
    format!("{}::{}", quoted(literal), type_name(type_oid))
}

pub fn type_name(type_oid: TypeOid) -> String {
    match type_oid {
        oid::BPCHAR => "bpchar".to_owned(),
        other => Types::BUILT_IN.name(other),
    }
}

/// A string constant.
pub fn quoted(literal: &str) -> String {
    format!("'{}'", literal.replace('\'', "''"))
}
