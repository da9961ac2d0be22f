//! How a farm manager is asked: over HTTP, by one of its programs, or in its own protocol. Every
//! question is bounded in time and in the length of its answer.

use std::fmt;
use std::process::Stdio;
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use gleaner_protocol::error_chain;
use reqwest::{Client, Url};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

use super::afanasy;
use super::sieve::{Fields, Sieve, Sieved};
use crate::SourceError;
use crate::limits::{
    HOSTS_MAX, POLL_ANSWER_BYTES_MAX, POLL_AT_ONCE_MAX, POLL_COMPLAINT_BYTES_MAX,
    POLL_STREAM_BYTES_MAX, POLL_TIMEOUT,
};

/// One of those that a list names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Each {
    /// Where it is; else why it cannot be asked about.
    pub(super) path: Result<String, String>,
    /// What the list has of it.
    pub(super) listed: Map<String, Value>,
}

/// Any object.
#[derive(Deserialize)]
struct AnyObject {}

impl Each {
    /// What stands for its answer where it gave none.
    fn without_answer(mut self, why: String) -> Vec<u8> {
        self.listed.insert(UNANSWERED.into(), why.into());
        Value::Object(self.listed).to_string().into_bytes()
    }
}

/// The field of an answer that is none, which says why.
pub(super) const UNANSWERED: &str = "unanswered";

/// One question.
#[derive(Debug, Clone)]
pub(super) enum Question {
    /// What is behind a URL.
    Get {
        /// Where.
        url: Url,
        /// Through this.
        client: Client,
    },
    /// What is behind each of several paths, which are named by what is behind a URL. The answer
    /// is a JSON array of all of them.
    GetEach {
        /// Where the names are.
        url: Url,
        /// Through this.
        client: Client,
        /// The paths that a list names.
        each: fn(&[u8]) -> Result<Vec<Each>, String>,
    },
    /// What a program writes to its standard output.
    Program {
        /// The program, found by `PATH`, and its arguments.
        argv: Vec<&'static str>,
        /// What it is called where it is told of.
        name: String,
        /// What is kept of the JSON that it prints; all that it prints, where none is said.
        keeps: Option<Fields>,
    },
    /// What Afanasy's server answers to a JSON message.
    Afanasy {
        /// Its host.
        host: String,
        /// Its port.
        port: u16,
        /// The message.
        body: &'static str,
    },
}

impl Question {
    /// A program and its arguments.
    pub(super) fn program<const N: usize>(argv: [&'static str; N]) -> Self {
        Self::Program { argv: argv.to_vec(), name: argv.join(" "), keeps: None }
    }

    /// Of the JSON that a program prints, these fields alone, so that the others may be of any length and
    /// form.
    pub(super) fn keeping(self, fields: Fields) -> Self {
        match self {
            Self::Program { argv, name, .. } => Self::Program { argv, name, keeps: Some(fields) },
            other => other,
        }
    }

    /// A Python script, which is told of by its name. Modules of where the monitor was started, of
    /// its user and of its environment are none of the script's.
    pub(super) fn python(name: &str, script: &'static str) -> Self {
        let (argv, name) = (vec!["python3", "-I", "-c", script], format!("python3 {name}"));
        Self::Program { argv, name, keeps: None }
    }

    /// Asks it.
    pub(super) async fn ask(&self) -> Result<Vec<u8>, SourceError> {
        self.ask_within(POLL_TIMEOUT.into()).await
    }

    async fn ask_within(&self, limit: Duration) -> Result<Vec<u8>, SourceError> {
        let answer = async {
            match self {
                Self::Get { url, client } => self.get(url, client).await,
                Self::GetEach { url, client, each } => self.get_each(url, client, *each).await,
                Self::Program { argv, keeps, .. } => self.run(argv, *keeps).await,
                Self::Afanasy { host, port, body } => self.exchange(host, *port, body).await,
            }
        };
        let too_slow =
            |_| SourceError::TooSlow { asked: self.to_string(), seconds: limit.as_secs_f64() };
        tokio::time::timeout(limit, answer).await.map_err(too_slow)?
    }

    async fn get(&self, url: &Url, client: &Client) -> Result<Vec<u8>, SourceError> {
        let request = client.get(url.clone());
        let mut answer = request.send().await.map_err(|error| self.unreachable(&error))?;
        if !answer.status().is_success() {
            let status = answer.status().as_u16().to_string();
            return Err(SourceError::Status { asked: self.to_string(), status });
        }
        let mut body = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(|error| self.unreachable(&error))? {
            if body.len() + part.len() > POLL_ANSWER_BYTES_MAX {
                return Err(self.too_long());
            }
            body.extend_from_slice(&part);
        }
        Ok(body)
    }

    async fn get_each(
        &self,
        url: &Url,
        client: &Client,
        each: fn(&[u8]) -> Result<Vec<Each>, String>,
    ) -> Result<Vec<u8>, SourceError> {
        let malformed = |reason| SourceError::Malformed { asked: self.to_string(), reason };
        let all = each(&self.get(url, client).await?).map_err(malformed)?;
        if all.len() > HOSTS_MAX {
            return Err(malformed(format!("there are more than {HOSTS_MAX} hosts")));
        }
        // One that does not answer costs itself alone; a server that does not costs all.
        let one = |one: Each| async move {
            let mut url = url.clone();
            match &one.path {
                Ok(path) => url.set_path(path),
                Err(why) => {
                    let why = why.clone();
                    return Ok(one.without_answer(why));
                }
            }
            let question = Self::Get { url: url.clone(), client: client.clone() };
            match question.get(&url, client).await {
                // Put together with the others, an answer that is none would go unnoticed.
                Ok(answer) => match serde_json::from_slice::<AnyObject>(&answer) {
                    Ok(_) => Ok(answer),
                    Err(error) => Ok(one.without_answer(format!("{question}: {error}"))),
                },
                Err(error @ SourceError::Status { .. }) => {
                    Ok(one.without_answer(error.to_string()))
                }
                Err(error) => Err(error),
            }
        };
        let mut answers = stream::iter(all.into_iter().map(one)).buffered(POLL_AT_ONCE_MAX);
        let mut together = vec![b'['];
        while let Some(answer) = answers.try_next().await? {
            if together.len() + answer.len() >= POLL_ANSWER_BYTES_MAX {
                return Err(self.too_long());
            }
            if together.len() > 1 {
                together.push(b',');
            }
            together.extend_from_slice(&answer);
        }
        together.push(b']');
        Ok(together)
    }

    async fn run(&self, argv: &[&str], keeps: Option<Fields>) -> Result<Vec<u8>, SourceError> {
        let (program, arguments) = argv.split_first().expect("a program");
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| self.unreachable(&error))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut sieve = keeps.map(Sieve::new);
        let answer = async {
            match &mut sieve {
                Some(sieve) => sift(stdout, sieve).await,
                None => read_all(stdout, POLL_ANSWER_BYTES_MAX).await,
            }
        };
        let (answer, complaint) = tokio::join!(answer, read_all(stderr, POLL_COMPLAINT_BYTES_MAX));
        let answer = answer.map_err(|error| self.unreachable(&error))?;
        let Some(answer) = answer else {
            // It is killed as it is dropped.
            return Err(self.too_long());
        };
        let status = child.wait().await.map_err(|error| self.unreachable(&error))?;
        if !status.success() {
            let complaint = complaint.ok().flatten().unwrap_or_default();
            let complaint = String::from_utf8_lossy(&complaint);
            let status = format!("{status}: {}", complaint.trim());
            return Err(SourceError::Status { asked: self.to_string(), status });
        }
        let Some(sieve) = sieve else { return Ok(answer) };
        let malformed = |reason| SourceError::Malformed { asked: self.to_string(), reason };
        sieve.finish().map(Sieved::into_answer).map_err(malformed)
    }

    async fn exchange(&self, host: &str, port: u16, body: &str) -> Result<Vec<u8>, SourceError> {
        let refused = |error: std::io::Error| self.unreachable(&error);
        let mut stream = TcpStream::connect((host, port)).await.map_err(refused)?;
        stream.write_all(&afanasy::frame(body)).await.map_err(refused)?;
        let mut answer = Vec::new();
        loop {
            let malformed = |reason| SourceError::Malformed { asked: self.to_string(), reason };
            if let Some(body) = afanasy::unframe(&answer).map_err(malformed)? {
                return Ok(answer[body].to_vec());
            }
            if answer.len() > POLL_ANSWER_BYTES_MAX {
                return Err(self.too_long());
            }
            if stream.read_buf(&mut answer).await.map_err(refused)? == 0 {
                return Err(malformed("it ended before it was complete".into()));
            }
        }
    }

    fn unreachable(&self, error: &dyn std::error::Error) -> SourceError {
        SourceError::Unreachable { asked: self.to_string(), reason: error_chain(error) }
    }

    fn too_long(&self) -> SourceError {
        SourceError::TooLong { asked: self.to_string(), max: POLL_ANSWER_BYTES_MAX }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Get { url, .. } | Self::GetEach { url, .. } => url.fmt(f),
            Self::Program { name, .. } => write!(f, "`{name}`"),
            Self::Afanasy { host, port, .. } => write!(f, "tcp://{host}:{port}"),
        }
    }
}

/// Has a sieve read all of it, and keeps nothing else; none where that is more than is kept of an answer,
/// or all is more than a program may print.
async fn sift(
    from: Option<impl AsyncRead + Unpin>,
    sieve: &mut Sieve,
) -> std::io::Result<Option<Vec<u8>>> {
    let Some(from) = from else { return Ok(Some(Vec::new())) };
    let mut from = from.take(POLL_STREAM_BYTES_MAX);
    let mut piece = vec![0; 256 << 10];
    loop {
        let bytes = from.read(&mut piece).await?;
        if bytes == 0 {
            return Ok((from.limit() > 0).then(Vec::new));
        }
        sieve.push(&piece[..bytes]);
        if sieve.len() > POLL_ANSWER_BYTES_MAX {
            return Ok(None);
        }
    }
}

/// All of it, or none where it is longer than `max` bytes.
async fn read_all(
    from: Option<impl AsyncRead + Unpin>,
    max: usize,
) -> std::io::Result<Option<Vec<u8>>> {
    let mut all = Vec::new();
    if let Some(from) = from {
        from.take(max as u64 + 1).read_to_end(&mut all).await?;
    }
    Ok((all.len() <= max).then_some(all))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    async fn said<const N: usize>(argv: [&'static str; N]) -> String {
        let answer = Question::program(argv).ask().await;
        answer.map_or_else(
            |error| error.to_string(),
            |bytes| String::from_utf8(bytes).expect("what the test wrote"),
        )
    }

    #[tokio::test]
    async fn a_program_answers_by_its_standard_output() {
        assert_eq!(said(["sh", "-c", "echo yes; echo no >&2"]).await, "yes\n");
    }

    #[tokio::test]
    async fn a_program_that_fails_is_quoted() {
        let error = said(["sh", "-c", "echo half; echo the controller is down >&2; exit 3"]).await;
        assert!(error.contains("exit status: 3: the controller is down"), "{error}");
        let error = said(["/nowhere/squeue", "--json"]).await;
        assert!(error.contains("`/nowhere/squeue --json`: No such file"), "{error}");
    }

    #[tokio::test]
    async fn a_script_is_told_of_by_its_name() {
        let question = Question::python("ask.py", "import sys\nsys.exit('no supervisor')");
        let error = question.ask().await.expect_err("no answer").to_string();
        assert!(error.contains("`python3 ask.py`") && error.contains("no supervisor"), "{error}");
        assert!(!error.contains("import"), "{error}");
    }

    #[tokio::test]
    async fn a_program_that_never_ends_is_given_up() {
        let question = Question::program(["sleep", "1000000"]);
        let error = question.ask_within(Duration::from_millis(20)).await.expect_err("no answer");
        assert_eq!(error.to_string(), "`sleep 1000000` did not answer within 0.02 s");
    }

    #[tokio::test]
    async fn a_program_without_end_is_stopped() {
        let error = said(["yes"]).await;
        assert!(error.contains("longer than"), "{error}");
    }

    /// A web server that knows these paths; where it is.
    async fn serves(pages: &'static [(&'static str, &'static str)]) -> Url {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.expect("a question");
                tokio::spawn(async move {
                    let mut asked = Vec::new();
                    while !asked.ends_with(b"\r\n\r\n") {
                        if stream.read_buf(&mut asked).await.expect("its text") == 0 {
                            return;
                        }
                    }
                    let asked = String::from_utf8_lossy(&asked);
                    let path = asked.split(' ').nth(1).unwrap_or_default();
                    let page = pages.iter().find(|(known, _)| *known == path);
                    let (status, body) =
                        page.map_or(("404 None", ""), |(_, body)| ("200 OK", *body));
                    let length = body.len();
                    let answer = format!(
                        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
                    );
                    stream.write_all(answer.as_bytes()).await.expect("written");
                });
            }
        });
        Url::parse(&format!("http://{address}/list")).expect("an address")
    }

    fn paths(list: &[u8]) -> Result<Vec<Each>, String> {
        let paths: Vec<String> = serde_json::from_slice(list).map_err(|error| error.to_string())?;
        let each = |path: String| {
            let listed = Map::from_iter([("name".into(), path.clone().into())]);
            let path = if path.starts_with('/') { Ok(path) } else { Err("no path".into()) };
            Each { path, listed }
        };
        Ok(paths.into_iter().map(each).collect())
    }

    const ONE: &str = r#"{"n":1}"#;
    const TWO: &str = r#"{"n":2}"#;

    #[tokio::test]
    async fn each_that_a_list_names_is_asked_and_one_that_is_gone_costs_itself_alone() {
        // Refused where another test was first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        for (pages, expected) in [
            (&[("/list", r#"["/a","/b"]"#), ("/a", ONE), ("/b", TWO)][..], Ok(&[ONE, TWO][..])),
            (&[("/list", "[]")], Ok(&[])),
            (
                &[("/list", r#"["/a","/b"]"#), ("/a", ONE)],
                Ok(&[ONE, r#""name":"/b","unanswered":"#]),
            ),
            (
                &[("/list", r#"["/a","/b"]"#), ("/a", ""), ("/b", TWO)],
                Ok(&[r#""unanswered":"#, TWO]),
            ),
            (&[("/list", r#"["/a"]"#), ("/a", "1,2")], Ok(&[r#""unanswered":"#])),
            (&[("/list", r#"["b"]"#)], Ok(&[r#"{"name":"b","unanswered":"no path"}"#])),
            (&[("/list", "<html>")], Err("expected value")),
            (&[], Err("404")),
        ] {
            let (url, client) = (serves(pages).await, Client::new());
            let answer = Question::GetEach { url, client, each: paths }.ask().await;
            match (answer, expected) {
                (Ok(answer), Ok(parts)) => {
                    let all: Vec<Value> = serde_json::from_slice(&answer).expect("an array");
                    assert_eq!(all.len(), parts.len());
                    let text = String::from_utf8_lossy(&answer);
                    parts.iter().for_each(|part| assert!(text.contains(part), "{text}: {part}"));
                }
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (answer, expected) => panic!("{answer:?} instead of {expected:?}"),
            }
        }
    }

    #[tokio::test]
    async fn what_nobody_reads_may_be_longer_than_an_answer_that_is_kept() {
        // 80 MB of a comment, which is not kept.
        let script = "printf '{\"jobs\":[{\"comment\":\"'; head -c 80000000 /dev/zero | tr '\\0' x; \
                      printf '\",\"id\":1}]}'";
        let question = Question::program(["sh", "-c", script]).keeping(&[&["jobs"], &["id"]]);
        assert_eq!(question.ask().await.expect("an answer"), b"{\"jobs\":[{\"id\":1}]}");
        let error = Question::program(["echo", "no JSON"]).keeping(&[&["jobs"]]).ask().await;
        let error = error.expect_err("none").to_string();
        assert!(error.contains("`echo no JSON` makes no sense: it has no JSON"), "{error}");
    }

    /// A server that answers with these parts, and what it was asked.
    async fn answers(
        parts: &'static [&'static str],
    ) -> (Question, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let asked = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a question");
            let mut asked = vec![0; 256];
            let bytes = stream.read(&mut asked).await.expect("its text");
            for part in parts {
                stream.write_all(part.as_bytes()).await.expect("written");
                stream.flush().await.expect("written");
            }
            String::from_utf8_lossy(&asked[..bytes]).into_owned()
        });
        (Question::Afanasy { host: "127.0.0.1".into(), port, body: "{\"get\":{}}" }, asked)
    }

    #[tokio::test]
    async fn afanasy_answers_in_frames() {
        // Its length counts what follows the word, and spaces may follow that.
        let (question, asked) = answers(&["AFANASY 1", "4 JSON{\"rend", "ers\":[]} ", " "]).await;
        assert_eq!(question.ask().await.expect("complete"), b"{\"renders\":[]}");
        assert_eq!(asked.await.expect("asked"), "AFANASY 10 JSON{\"get\":{}}");
        let (question, _) = answers(&["AFANASY 15 JSON{\"renders\":[]}"]).await;
        let error = question.ask().await.expect_err("it is shorter than said").to_string();
        assert!(error.contains("it ended before it was complete"), "{error}");
    }
}
