//! How a farm manager is asked: over HTTP, by one of its programs, or in its own protocol. Every
//! question is bounded in time and in the length of its answer.

use std::fmt;
use std::process::Stdio;
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use gleaner_protocol::error_chain;
use reqwest::{Client, Url};
use serde::de::IgnoredAny;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

use super::afanasy;
use crate::SourceError;
use crate::limits::{
    HOSTS_MAX, POLL_ANSWER_BYTES_MAX, POLL_AT_ONCE_MAX, POLL_COMPLAINT_BYTES_MAX, POLL_TIMEOUT,
};

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
        each: fn(&[u8]) -> Result<Vec<String>, String>,
    },
    /// What a program writes to its standard output.
    Program {
        /// The program, found by `PATH`, and its arguments.
        argv: Vec<&'static str>,
        /// What it is called where it is told of.
        name: String,
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
        Self::Program { argv: argv.to_vec(), name: argv.join(" ") }
    }

    /// A Python script, which is told of by its name. Modules of where the monitor was started, of
    /// its user and of its environment are none of the script's.
    pub(super) fn python(name: &str, script: &'static str) -> Self {
        Self::Program { argv: vec!["python3", "-I", "-c", script], name: format!("python3 {name}") }
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
                Self::Program { argv, .. } => self.run(argv).await,
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
        each: fn(&[u8]) -> Result<Vec<String>, String>,
    ) -> Result<Vec<u8>, SourceError> {
        let malformed = |reason| SourceError::Malformed { asked: self.to_string(), reason };
        let paths = each(&self.get(url, client).await?).map_err(malformed)?;
        if paths.len() > HOSTS_MAX {
            return Err(malformed(format!("there are more than {HOSTS_MAX} hosts")));
        }
        let one = |path: String| async move {
            let mut url = url.clone();
            url.set_path(&path);
            let question = Self::Get { url: url.clone(), client: client.clone() };
            let answer = question.get(&url, client).await?;
            // Put together with the others, an answer that is none would go unnoticed.
            let parsed = serde_json::from_slice::<IgnoredAny>(&answer);
            let asked = || question.to_string();
            parsed.map_err(|error| SourceError::Malformed {
                asked: asked(),
                reason: error.to_string(),
            })?;
            Ok(answer)
        };
        let mut answers = stream::iter(paths.into_iter().map(one)).buffered(POLL_AT_ONCE_MAX);
        let mut all = vec![b'['];
        while let Some(answer) = answers.try_next().await? {
            if all.len() + answer.len() >= POLL_ANSWER_BYTES_MAX {
                return Err(self.too_long());
            }
            if all.len() > 1 {
                all.push(b',');
            }
            all.extend_from_slice(&answer);
        }
        all.push(b']');
        Ok(all)
    }

    async fn run(&self, argv: &[&str]) -> Result<Vec<u8>, SourceError> {
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
        let (answer, complaint) = tokio::join!(
            read_all(stdout, POLL_ANSWER_BYTES_MAX),
            read_all(stderr, POLL_COMPLAINT_BYTES_MAX),
        );
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
        Ok(answer)
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

    fn paths(list: &[u8]) -> Result<Vec<String>, String> {
        serde_json::from_slice(list).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn each_that_a_list_names_is_asked_and_one_that_is_gone_spoils_the_whole() {
        // Refused where another test was first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        for (pages, expected) in [
            (&[("/list", r#"["/a","/b"]"#), ("/a", "1"), ("/b", "2")][..], Ok("[1,2]")),
            (&[("/list", "[]")], Ok("[]")),
            (&[("/list", r#"["/a","/b"]"#), ("/a", "1")], Err("404")),
            (&[("/list", r#"["/a","/b"]"#), ("/a", "1"), ("/b", "")], Err("/b")),
            (&[("/list", r#"["/a"]"#), ("/a", "1,2")], Err("trailing")),
            (&[("/list", "<html>")], Err("expected value")),
            (&[], Err("404")),
        ] {
            let (url, client) = (serves(pages).await, Client::new());
            let answer = Question::GetEach { url, client, each: paths }.ask().await;
            match (answer, expected) {
                (Ok(answer), Ok(expected)) => assert_eq!(answer, expected.as_bytes()),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (answer, expected) => panic!("{answer:?} instead of {expected:?}"),
            }
        }
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
