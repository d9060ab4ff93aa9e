//! Reading and merging hostile input takes time in proportion to its size.

mod files;
mod merges;

use std::time::{Duration, Instant};

use gitcd_merge::admit::{self, Admission};
use gitcd_merge::schema::Schemas;
use gitcd_merge::secrecy::{Exposure, SecretKinds};
use gitcd_merge::value::Value;

const SMALL: usize = 8 << 10;
const FACTOR: usize = 8;
/// How much more time the larger input may take. In proportion it would be [`FACTOR`], with the square of the size 64.
const MOST: u32 = 3 * FACTOR as u32;
/// Time that is too short to compare on a busy machine.
const SHORT: Duration = Duration::from_millis(200);
const TRIES: usize = 5;

/// Returns a text for each number, one after the other.
fn each(count: usize, text: impl Fn(usize) -> String) -> String {
    (0..count).fold(String::new(), |all, number| all + &text(number))
}

/// Requires that a task takes time in proportion to its input, given a small one and one of [`FACTOR`] times its size.
fn in_proportion<T: ?Sized>(name: &str, small: &T, large: &T, task: impl Fn(&T)) {
    let time = |input: &T| {
        let start = Instant::now();
        task(input);
        start.elapsed()
    };
    let mut found = Vec::new();
    for _ in 0..TRIES {
        let (one, other) = (time(small), time(large));
        if other < MOST * one + SHORT {
            return;
        }
        found.push((one, other));
    }
    panic!("{name}: {found:?}");
}

/// All that is done with a pushed file.
fn read(text: &str) {
    let schemas = Schemas::builtin();
    let admission = Admission { schemas: &schemas, is_kubernetes: true, completes: true };
    let file = text.as_bytes();
    let exposure = SecretKinds::default().of_value(file);
    let wrong = match admission.admit(b"configmaps/b/a", file, None, || None) {
        Ok(_) => admit::check(&schemas, file),
        Err(wrong) => wrong,
    };
    let reason = admit::reason(&wrong, file, exposure);
    assert!(reason.len() < 1000, "{reason}");
    if let Ok((value, syntax)) = Value::read(file) {
        assert!(!value.write_over(syntax, file).is_empty());
    }
}

#[test]
fn files_are_read_in_time_that_is_proportional_to_their_size() {
    let (small, large) = (files::files(SMALL), files::files(FACTOR * SMALL));
    for ((name, small), (_, large)) in small.iter().zip(&large) {
        in_proportion(name, small.as_str(), large.as_str(), read);
    }
}

#[test]
fn what_is_too_large_or_too_deep_is_no_object_and_not_even_parsed() {
    let object = |padding: usize| {
        format!("{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"data\":{{\"a\":\"{}\"}}}}", "a".repeat(padding))
    };
    let around = object(0).len();
    assert!(Value::read(object(gitcd_merge::MAX_BYTES - around).as_bytes()).is_ok());
    let large = object(gitcd_merge::MAX_BYTES - around + 1);
    assert_eq!(
        Value::read(large.as_bytes()).unwrap_err().to_string(),
        "it is larger than 4 MiB, which no object of Kubernetes is"
    );
    let schemas = Schemas::builtin();
    let admission = |is_kubernetes| Admission { schemas: &schemas, is_kubernetes, completes: true };
    let wrong = admission(true).admit(b"configmaps/b/a", large.as_bytes(), None, || None).unwrap_err();
    assert!(admit::reason(&wrong, large.as_bytes(), Exposure::Open).contains("larger than 4 MiB"), "{wrong:?}");
    let other = "x: a\n".repeat(gitcd_merge::MAX_BYTES / 5 + 1);
    assert_eq!(
        admission(false).admit(b"a", other.as_bytes(), None, || None),
        Ok(None),
        "any other value may be stored"
    );
    let long = "a".repeat(16 << 10);
    for text in [format!("{{\"x\":{{\"{long}\":1}}}}"), format!("x:\n  ? {long}\n  : 1\n")] {
        let problem = Value::read(text.as_bytes()).unwrap_err().to_string();
        assert!(problem.contains("more than 16 KiB"), "{problem}");
    }
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        for depth in [100, 5_000, 100_000] {
            let text = format!("{{\"x\":{}1{}}}", open.repeat(depth), close.repeat(depth));
            assert_eq!(Value::parse(text.as_bytes()).is_some(), depth == 100, "{open} {depth}");
        }
    }
}
