//! Servers whose speeds, paths and copies are given, in the place of drawn ones.

use super::load::SAMPLES;
use super::servers::{Server, Servers};
use crate::input_file::read_text;
use crate::limits::SERVERS_BYTES_MAX;

/// Most servers of a file, as many as can be drawn.
const SERVERS_MAX: usize = 1_000;
/// Fields of a line: name, seconds, two rates, chunks.
const FIELDS: usize = 5;

/// The servers of a file: a line `name,task_s,client_mb_s,server_mb_s,chunks` for each. Alone a task takes
/// such a server so many seconds of computing; it sends so many MB/s to the client, and to each other server;
/// it has copies of these of `chunks` chunks, by number, with spaces between them. Empty lines are skipped.
///
/// # Errors
/// Names the file, the line and what was expected.
pub(super) fn read_servers(path: &str, work_s: f64, chunks: usize) -> Result<Servers, String> {
    parse_servers(path, &read_text(path, SERVERS_BYTES_MAX)?, work_s, chunks)
}

fn parse_servers(path: &str, text: &str, work_s: f64, chunks: usize) -> Result<Servers, String> {
    let (mut list, mut rates) = (Vec::new(), Vec::new());
    let mut copies = vec![Vec::new(); chunks];
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    for (number, line) in lines.take(SERVERS_MAX + 1) {
        let wrong = |wrong| format!("{path}, line {}: {wrong}", number + 1);
        let (server, rate, held) = parse_line(line, work_s, chunks).map_err(wrong)?;
        for chunk in held {
            let holders: &mut Vec<usize> = &mut copies[chunk];
            if holders.last() != Some(&list.len()) {
                holders.push(list.len());
            }
        }
        list.push(server);
        rates.push(rate);
    }
    if list.is_empty() || list.len() > SERVERS_MAX {
        return Err(format!("{path}: expected a line for each of 1 to {SERVERS_MAX} servers"));
    }
    if let Some(chunk) = copies.iter().position(Vec::is_empty) {
        return Err(format!(
            "{path}: no server has chunk {chunk}, expected copies of all {chunks}"
        ));
    }
    let paths = rates.iter().flat_map(|rate| vec![*rate; list.len()]).collect();
    Ok(Servers { list, paths, copies, day_s: 0.0, least_share: 1.0 })
}

fn parse_line(line: &str, work_s: f64, chunks: usize) -> Result<(Server, f64, Vec<usize>), String> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [_, task_s, client_mb_s, server_mb_s, held] = fields[..] else {
        let count = fields.len();
        return Err(format!(
            "it has {count} fields, expected {FIELDS}: name,task_s,client_mb_s,server_mb_s,chunks"
        ));
    };
    let number = |what: &str, text: &str| {
        let number = text.parse().ok().filter(|number: &f64| (1e-3..=1e6).contains(number));
        number.ok_or_else(|| format!("{what} is {text:?}, expected a number from 0.001 to 1000000"))
    };
    let held = held.split_whitespace().map(|text| {
        let chunk = text.parse().ok().filter(|chunk| *chunk < chunks);
        chunk.ok_or_else(|| format!("a chunk is {text:?}, expected a number below {chunks}"))
    });
    let server = Server {
        speed: work_s / number("task_s", task_s)?,
        load: [0.0; SAMPLES],
        client_mb_s: number("client_mb_s", client_mb_s)?,
    };
    Ok((server, number("server_mb_s", server_mb_s)?, held.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use gleaner_protocol::{Span, Time};

    use super::*;

    #[test]
    fn servers_are_as_they_are_given() {
        let text = "a,2,0.5,4,0 2\n\nb, 8, 1, 0.25, 1 0 0\r\n";
        let servers = parse_servers("f", text, 5.925, 3).expect("two");
        assert_eq!(servers.copies, [vec![0, 1], vec![1], vec![0]]);
        let secs = |seconds| Time::ZERO + Span::from_secs(seconds);
        assert_eq!(servers.computed(0, secs(1), 5.925), secs(3));
        assert_eq!(servers.computed(1, secs(1), 5.925), secs(9));
        assert_eq!((servers.path_mb_s(0, 1), servers.path_mb_s(1, 0)), (4.0, 0.25));
        assert_eq!(servers.sending(0, 0.25), Span::from_millis(500));
    }

    #[test]
    fn what_is_wrong_is_said_with_file_and_line() {
        for (text, says) in [
            ("", "f: expected a line for each of 1 to 1000 servers"),
            ("a,1,1,1,0\nb,1,1,1", "f, line 2: it has 4 fields, expected 5"),
            ("a,0,1,1,0", "line 1: task_s is \"0\", expected a number"),
            ("a,1,NaN,1,0", "client_mb_s is \"NaN\""),
            ("a,1,1,inf,0", "server_mb_s is \"inf\""),
            ("a,1,1,1,0 2", "a chunk is \"2\", expected a number below 2"),
            ("a,1,1,1,0 x", "a chunk is \"x\""),
            ("a,1,1,1,0", "f: no server has chunk 1, expected copies of all 2"),
        ] {
            let error = parse_servers("f", text, 1.0, 2).expect_err(says);
            assert!(error.contains(says), "{error}");
        }
        let many = "a,1,1,1,0 1\n".repeat(SERVERS_MAX + 1);
        assert!(parse_servers("f", &many, 1.0, 2).is_err());
    }
}
