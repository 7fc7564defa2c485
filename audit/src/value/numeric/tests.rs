//! What the server answered, by hand; the differential tests do the rest.

use super::*;

fn n(text: &str) -> Numeric {
    Numeric::parse(text).unwrap()
}

#[test]
fn scales_of_results() {
    assert_eq!(n("1.0").add(&n("2.00")).unwrap().to_string(), "3.00");
    assert_eq!(n("1.5").mul(&n("1.5")).unwrap().to_string(), "2.25");
    assert_eq!(n("1").div(&n("3")).unwrap().to_string(), "0.33333333333333333333");
    assert_eq!(n("10").div(&n("3")).unwrap().to_string(), "3.3333333333333333");
    assert_eq!(
        n("100000").div(&n("7")).unwrap().to_string(),
        "14285.714285714286"
    );
    assert_eq!(n("-7.5").rem(&n("2")).unwrap().to_string(), "-1.5");
    assert_eq!(n("2").sqrt().unwrap().to_string(), "1.414213562373095");
    assert_eq!(n("-2.5").round(0).unwrap().to_string(), "-3");
    assert_eq!(n("155").round(-1).unwrap().to_string(), "160");
    assert_eq!(n("1e-5").to_string(), "0.00001");
}

#[test]
fn equal_values_are_equal_keys() {
    use std::hash::{BuildHasher, BuildHasherDefault};
    let hash = |v: &Numeric| BuildHasherDefault::<std::hash::DefaultHasher>::default().hash_one(v);
    let (a, b) = (n("1.0"), n("1.000000000000000000000000000000"));
    assert_eq!(a, b);
    assert_eq!(hash(&a), hash(&b));
    assert!(!a.is_identical(&b));
    assert!(n("NaN") > n("Infinity"));
    assert!(n("-Infinity") < n("-1e1000"));
}

#[test]
fn binary_round_trip() {
    for text in [
        "0",
        "0.00",
        "1",
        "-1.5",
        "12345.678",
        "0.00001",
        "1e30",
        "-99999999999999999999.9999",
        "10000",
        "NaN",
    ] {
        let value = n(text);
        let back = Numeric::from_binary(&value.to_binary()).unwrap();
        assert!(value.is_identical(&back) || value.is_nan(), "{text}");
    }
}

#[test]
fn modifiers_round_and_refuse() {
    let typmod = |precision: i32, scale: i32| ((precision << 16) | (scale & 0x7ff)) + 4;
    assert_eq!(n("1.235").with_typmod(typmod(5, 2)).unwrap().to_string(), "1.24");
    assert_eq!(
        n("999.995").with_typmod(typmod(5, 2)).unwrap_err().sqlstate(),
        Some("22003")
    );
    assert_eq!(
        n("12345").with_typmod(typmod(3, -2)).unwrap().to_string(),
        "12300"
    );
}
