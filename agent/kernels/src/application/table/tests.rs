//! Tables as programs write them.

use super::*;

fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), bytes).expect("written");
    file
}

/// What a file gives; looking at it says the same.
fn read_bytes(bytes: &[u8]) -> Result<Table, String> {
    let file = file(bytes);
    let read = read(file.path(), &|| u64::MAX).map_err(|error| error.to_string());
    let checked = check(file.path()).map_err(|error| error.to_string());
    assert_eq!(checked.as_ref().err(), read.as_ref().err());
    if let (Ok(read), Ok(checked)) = (&read, checked) {
        assert_eq!(read.remarks, checked);
    }
    read
}

fn parsed(text: &str) -> Result<Table, String> {
    read_bytes(text.as_bytes())
}

fn told(text: &str) -> String {
    parsed(text).expect_err("refused")
}

fn names(table: &Table) -> Vec<&str> {
    table.names.iter().flat_map(Names::iter).collect()
}

const NUMBERS: [f64; 4] = [1.5, 2.0, 3.0, 4.5];

#[test]
fn a_table_is_read_back_as_it_was_written() {
    let matrix = Matrix::new(2, 2, vec![0.1, -3e200, 5e-324, 7.0]).expect("finite");
    for expected in [["a1", "a2"], ["1990", "0"], ["x, y", "say \"z\""], ["a;b", " c"]] {
        let written = text(expected, &matrix);
        let read = read_bytes(&written).expect("a table");
        assert_eq!((&read.numbers, names(&read)), (&matrix, expected.to_vec()));
        // Lines of numbers have as many commas as columns whatever these are called.
        assert!(written.ends_with(b"\n"));
    }
    assert!(text(["a", "1e3"], &matrix).starts_with(b"a,\"1e3\"\n0.1,"));
}

#[test]
fn a_table_is_the_same_however_it_was_saved() {
    for text in [
        "a,b\n1.5,2\n3,4.5\n",
        "a;b\n1.5;2\n3;4.5\n",
        "a\tb\n1.5\t2\n3\t4.5\n",
        "a,b\r1.5,2\r3,4.5\r",
        "a,b\r\n1.5,2\r\n\r\n3,4.5",
        "\u{feff}a,b\n1.5,2\n3,4.5\n",
        "a,b,\n1.5,2,\n3,4.5,\n",
        "a,b,\n1.5,2\n3,4.5\n",
        "a,b\n1.5,2,\n3,4.5,\n",
        "\"a\",\"b\"\n\"1.5\",\"2\"\n\"3\",\"4.5\"\n",
        " a , \"b\"\n 1.5 ,\t2\n \t\n3 , 4.5\n\n",
    ] {
        let utf16 = |bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
            text.encode_utf16().flat_map(bytes).collect()
        };
        for bytes in [text.as_bytes().to_vec(), utf16(u16::to_le_bytes), utf16(u16::to_be_bytes)] {
            let table = read_bytes(&bytes).expect(text);
            assert_eq!((table.numbers.numbers(), names(&table)), (&NUMBERS[..], vec!["a", "b"]));
            assert_eq!((table.numbers.rows(), table.remarks.len()), (2, 0));
        }
    }
    for text in ["1.5,2\n3,4.5", "1.5;2;\r\n3;4.5;\r\n", "\"1.5\",\"2\"\n\"3\",\"4.5\"\n"] {
        let table = parsed(text).expect(text);
        assert_eq!((table.numbers.numbers(), names(&table).len()), (&NUMBERS[..], 0), "{text}");
    }
    let latin = read_bytes(b"gr\xf6\xdfe,b\n1.5,2\n3,4.5\n").expect("a table");
    assert_eq!(names(&latin), ["größe", "b"]);
}

#[test]
fn an_index_is_left_out_and_told() {
    for text in [
        ",a,b\n0,1.5,2\n1,3,4.5\n",
        ",a,b\n17,1.5,2\n3,3,4.5\n",
        ",a,b\nMazda RX4,1.5,2\nDatsun 710,3,4.5\n",
        "\"\",\"a\",\"b\"\n\"1\",1.5,2\n\"2\",3,4.5\n",
        "Unnamed: 0,a,b\n0,1.5,2\n1,3,4.5\n",
        ";a;b\n2024-01-01;1.5;2\n2024-01-02;3;4.5\n",
        "\u{feff},a,b,\r\n0,1.5,2,\r\n1,3,4.5,\r\n",
    ] {
        let table = parsed(text).expect(text);
        assert_eq!((table.numbers.numbers(), names(&table)), (&NUMBERS[..], vec!["a", "b"]));
        assert_eq!(
            table.remarks,
            ["its first column has no name: taken for an index and left out"],
            "{text}"
        );
        assert_eq!(table.columns(), "2 columns: a, b");
    }
    let two = parsed("Unnamed: 0.1,Unnamed: 0,a,b\n0,0,1.5,2\n1,1,3,4.5\n").expect("a table");
    assert_eq!((two.numbers.numbers(), names(&two)), (&NUMBERS[..], vec!["a", "b"]));
    assert!(two.remarks[0].starts_with("its first 2 columns have no name"), "{two:?}");
    let both = parsed(",0,1\n0,1.5,2\n1,3,4.5\n").expect("a table");
    assert_eq!((both.numbers.numbers(), names(&both)), (&NUMBERS[..], vec!["0", "1"]));
    assert!(both.remarks[0].contains("taken for an index"), "{both:?}");
    assert!(both.remarks[1].contains("from 0 to 1: taken for their names"), "{both:?}");
    let fractions = told(",a,b\n0.25,1.5,2\n0.5,3,4.5\n");
    assert!(
        fractions.starts_with("line 2: column 1 has no name and is not an index"),
        "{fractions}"
    );
    let shorter = told("a,b\n0,1.5,2\n1,3,4.5\n");
    assert!(
        shorter.starts_with("line 2 has 3 cells, and those before it 2: where the"),
        "{shorter}"
    );
    let alone = parsed("\"\"\n1.5\n2\n").map(|table| table.numbers.columns());
    assert!(alone.is_err() || alone == Ok(1));
}

#[test]
fn what_counts_lines_or_columns_is_no_data_without_a_word() {
    let named = parsed("0,1,2,3\n1.5,2,3,4.5\n0.1,0.2,0.3,0.4\n").expect("a table");
    assert_eq!((named.numbers.rows(), names(&named)), (2, vec!["0", "1", "2", "3"]));
    assert!(named.remarks[0].contains("from 0 to 3: taken for their names"), "{named:?}");
    let named = parsed("0,1\n1.5,2\n3,4.5\n").expect("a table");
    assert_eq!((named.numbers.numbers(), names(&named)), (&NUMBERS[..], vec!["0", "1"]));
    let either = told("0,1,2,3\n7,8,9,6\n");
    assert!(either.contains("its first line counts from 0 to 3"), "{either}");
    let whole = parsed("0,1\n1,0\n").expect("a table");
    assert_eq!((whole.numbers.rows(), names(&whole).len()), (2, 0));
    let lines = |head: &str, from: usize| -> String {
        let row = |row: usize| format!("{},{}.5\n", row + from, row * row % 7);
        head.to_owned() + &(0..6).map(row).collect::<String>()
    };
    for from in [0, 1] {
        let index = told(&lines("", from));
        let words = format!("its first column counts its 6 lines from {from}");
        assert!(index.starts_with(&words) && index.contains("index=False"), "{index}");
        let named = parsed(&lines("time,a\n", from)).expect("a table");
        assert_eq!(named.numbers.columns(), 2);
        let words = format!("its column time counts the lines from {from}");
        assert!(named.remarks[0].starts_with(&words), "{named:?}");
        // Of a table without names, whose first line is left out as one of theirs.
        let named = parsed(&lines("0,1\n", from)).expect("a table");
        assert!(named.remarks[1].contains("its column 0 counts the lines"), "{named:?}");
    }
    assert_eq!(parsed(&lines("", 2)).expect("a table").numbers.rows(), 6);
    assert_eq!(parsed(&lines("a,b\n", 2)).expect("a table").remarks.len(), 0);
    let years = parsed("\"1990\",\"1991\"\n1.5,2\n3,4.5\n").expect("a table");
    assert_eq!((years.numbers.numbers(), names(&years)), (&NUMBERS[..], vec!["1990", "1991"]));
}

#[test]
fn what_is_no_table_is_told_with_its_line_and_column() {
    assert_eq!(told("a,b\n1,2\n3,x\n"), "line 3, column 2 (b): \"x\" is not a number");
    assert_eq!(told("1,b\n"), "line 1, column 2: \"b\" is not a number");
    assert_eq!(told("a,b\na,b\n"), "line 2, column 1 (a): \"a\" is not a number");
    assert_eq!(told("a,b\n"), "there is no line of numbers in it");
    assert_eq!(told(" \n\n"), "there is no line of numbers in it");
    assert_eq!(told(""), "there is no line of numbers in it");
    for (text, words) in [
        ("\na,2\n", "line 2: a is not a number, and others in the line are: give each column a"),
        ("1,2\n,\n", "line 2, column 1: the cell is empty: give it a number"),
        ("a,b\n\n1,\n3,4\n", "line 3, column 2 (b): the cell is empty"),
        ("a,b\n1,2\n3,na\n", "line 3, column 2 (b): \"na\" is not a finite number: give it one"),
        ("1,2\n3,nan\n", "line 2, column 2: \"nan\" is not a finite number"),
        ("a,b\r\n1,-Inf\r\n", "line 2, column 2 (b): \"-Inf\" is not a finite number"),
        ("a,b\r1,1e999\r", "line 2, column 2 (b): \"1e999\" is not a finite number"),
        ("a,b\n1,#N/A\n", "\"#N/A\" is not a finite number"),
        ("1,2\n3\n", "line 2 has 1 cells, and those before it 2: give each line as many"),
        ("a,b\n1,2\n1,2,3\n", "line 3 has 3 cells, and those before it 2: give"),
        ("1,2,\n3,4,5\n", "line 2 has 3 cells, and those before it 2: one of the lines ends with"),
        ("1 2 3\n4 5 6\n", "\"4 5 6\" is not a number, but numbers with spaces in between"),
        (
            "a;b\n1,5;2\n",
            "line 2, column 1 (a): \"1,5\" is not a number, but a number with a comma",
        ),
        ("a,b\n1,2\n3;4,5\n", "\"3;4\" is not a number, but separated in another way"),
        ("a,b\n1,\"2\n", "line 2: a quote (\") begins a cell, and none ends it"),
        ("a\u{1b}[2J,b\n1,2\nx,1\n", "line 3, column 1 (a\u{fffd}[2J): \"x\" is not a number"),
    ] {
        let told = told(text);
        assert!(told.contains(words), "{text:?}: {told}");
    }
    let long = told(&format!("1,2\n3,{}", "4".repeat(TABLE_FIELD_BYTES_MAX + 1)));
    assert!(long.starts_with("line 2: more than 4096 bytes without a comma"), "{long}");
    let long = told(&format!("1,2\n3,\"{}", "4".repeat(TABLE_FIELD_BYTES_MAX + 1)));
    assert!(long.starts_with("line 2: a quote"), "{long}");
    assert!(read_bytes(b"1\n\xff\n").expect_err("refused").contains("line 2, column 1: \"ÿ\""));
}

#[test]
fn columns_are_told_and_not_more_than_anybody_reads() {
    let columns = |text: &str| parsed(text).expect("a table").columns();
    assert_eq!(columns("1.5,2\n"), "2 columns without names");
    assert_eq!(columns("a\n1.5\n"), "1 column: a");
    assert_eq!(columns("a,,c\n1.5,2,3\n"), "3 columns: a, column2, c");
    let many: Vec<String> = (0..40).map(|at| format!("c{at}")).collect();
    let text = format!("{}\n{}\n", many.join(","), vec!["0.5"; 40].join(","));
    assert_eq!(columns(&text), "40 columns: c0, c1, c2, c3, c4, c5, c6, c7, …");
}

#[test]
fn a_table_that_does_not_fit_into_what_is_free_is_refused_in_numbers() {
    let file = file(("a,b\n".to_owned() + &"1,2\n".repeat(1 << 17)).as_bytes());
    let told = |free: u64| read(file.path(), &|| free).map(|table| table.numbers.rows());
    let error = told(1 << 20).expect_err("there is too little");
    assert!(matches!(error, TableError::Memory(_)));
    let words = "a table of 262144 numbers takes at least 2 MiB of memory, and 1 MiB are free";
    assert_eq!(error.to_string(), words);
    assert_eq!(told(2 << 20).expect("enough"), 1 << 17);
    let error = told(10).expect_err("there is too little").to_string();
    assert!(error.starts_with("a line of names takes"), "{error}");
}
