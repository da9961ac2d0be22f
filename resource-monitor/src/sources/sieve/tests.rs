//! What comes out of the sieve.

use proptest::prelude::{any, proptest};

use super::*;

/// What is kept of an answer; byte by byte it is the same.
fn kept(fields: Fields, answer: &[u8]) -> Result<String, String> {
    let json =
        |sieve: Sieve| sieve.finish().map(|sieved| String::from_utf8(sieved.json).expect("UTF-8"));
    let (mut whole, mut parts) = (Sieve::new(fields), Sieve::new(fields));
    whole.push(answer);
    answer.iter().for_each(|byte| parts.push(&[*byte]));
    let whole = json(whole);
    assert_eq!(whole, json(parts));
    whole
}

#[test]
fn what_is_nearly_json_becomes_json() {
    for (answer, json) in [
        (r#"{"a":005}"#, r#"{"a":"005"}"#),
        (r#"{"a":0x1F,"b":.5,"c":-}"#, r#"{"a":"0x1F","b":".5","c":"-"}"#),
        (r#"{"a":1e999,"b":NaN,"c":1.5}"#, r#"{"a":"1e999","b":"NaN","c":1.5}"#),
        (r#"{"a":,"b":}"#, r#"{"a":null,"b":null}"#),
        (r#"{"a":[1,2,],}"#, r#"{"a":[1,2]}"#),
        (r#"{"a":"\'x\'","b":"\x"}"#, r#"{"a":"'x'","b":"x"}"#),
        ("{\"a\":\"\u{1b}[1m\tb\nc\"}", r#"{"a":"\u001b[1m\u0009b\u000ac"}"#),
        (r#"{"a":"say "b" to c","d":1}"#, r#"{"a":"say \"b\" to c","d":1}"#),
        (r#"{"a":"\u12","b":1}"#, r#"{"a":"\\u12","b":1}"#),
        (r#"{"a":1, b: x y}"#, r#"{"a":1,"b":"x y"}"#),
        ("{\"a\" : true ,\n \"b\" : [ { } , \"c\" ] }", r#"{"a":true,"b":[{},"c"]}"#),
        (r#"[{"a":"b, c"},{"a":"}]"}]"#, r#"[{"a":"b, c"},{"a":"}]"}]"#),
    ] {
        assert_eq!(kept(ALL, answer.as_bytes()).as_deref(), Ok(json), "{answer}");
    }
    let latin = kept(ALL, b"{\"a\":\"m\xfcller\"}").expect("JSON");
    assert_eq!(latin, "{\"a\":\"m\u{fffd}ller\"}");
}

#[test]
fn fields_that_nobody_reads_are_dropped() {
    let answer = r#"{"meta":{"jobs":[1]},
        "jobs":{"1":{"vars":{"state":"x","y":"\"}"},"state":"R","n":[{"state":1}]},"2":{"n":005}},
        "rest":[]}"#;
    assert_eq!(
        kept(&[&["jobs"], &[], &["state"]], answer.as_bytes()).as_deref(),
        Ok(r#"{"jobs":{"1":{"state":"R"},"2":{}}}"#)
    );
    let answer = r#"{"jobs":[{"id":1,"name":"a","has":{"name":[{"x":1}]}},{"name":2}]}"#;
    assert_eq!(
        kept(&[&["jobs"], &["id", "has"]], answer.as_bytes()).as_deref(),
        Ok(r#"{"jobs":[{"id":1,"has":{"name":[{"x":1}]}},{}]}"#)
    );
}

#[test]
fn a_long_answer_takes_the_room_of_what_is_kept() {
    let mut sieve = Sieve::new(&[&["jobs"], &["id"]]);
    sieve.push(b"{\"jobs\":[");
    let job = format!("{{\"comment\":\"{}\",\"id\":1}},", "x".repeat(10_000));
    for _ in 0..1_000 {
        sieve.push(job.as_bytes());
    }
    assert_eq!(sieve.len(), "{\"jobs\":[".len() + 1_000 * "{\"id\":1},".len() - 1);
    sieve.push(b"]}");
    assert!(sieve.finish().is_ok());
}

#[test]
fn lines_around_it_are_set_aside() {
    let mut sieve = Sieve::new(ALL);
    sieve.push(b"[warning] a {b}\nslurm_load_jobs: warning\n  {\"a\":1}\nbye\n");
    let sieved = sieve.finish().expect("JSON");
    assert_eq!(sieved.before, "[warning] a {b}\nslurm_load_jobs: warning");
    assert_eq!((&sieved.json[..], &*sieved.behind), (&b"{\"a\":1}"[..], "bye"));
    let again = sieved.into_answer();
    assert_eq!(again, b"[warning] a {b}\nslurm_load_jobs: warning\n{\"a\":1}\nbye");
}

#[test]
fn what_is_not_whole_is_refused_with_what_stands_there() {
    for (answer, expected) in [
        ("", "it is empty"),
        (" \n", "it is empty"),
        ("cannot connect to host\n", r#"it has no JSON: it says "cannot connect to host""#),
        ("<html>", "it has no JSON: it says \"<html>\""),
        (r#"{"a":[1"#, "ends before it is complete"),
        (r#"{"a":"b"#, "ends before it is complete"),
        (r#"{"a":1]"#, "closes what it has not opened"),
        (r#"{"a":1,{"b":2}}"#, "a value has no name"),
        ("{\"a\":1}\n{\"a\":2}", "another answer follows"),
    ] {
        let error = kept(ALL, answer.as_bytes()).expect_err(answer);
        assert!(error.contains(expected), "{answer}: {error}");
    }
    let deep = "[".repeat(100_000);
    assert!(kept(ALL, deep.as_bytes()).expect_err("deep").contains("nested too deep"));
}

proptest! {
    #[test]
    fn whatever_comes_out_is_json(value in proptest::collection::vec(any::<u8>(), 0..200)) {
        let answer = [&b"{\"a\":"[..], &value, b"}"].concat();
        if let Ok(json) = kept(ALL, &answer) {
            serde_json::from_str::<Value>(&json).expect(&json);
        }
    }

    #[test]
    fn so_it_is_out_of_what_is_almost_json(answer in "[\\[\\]{}\",:\\\\a0u\n ]{0,60}") {
        if let Ok(json) = kept(&[&["a"]], answer.as_bytes()) {
            serde_json::from_str::<Value>(&json).expect(&json);
        }
    }
}
