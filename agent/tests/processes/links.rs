//! The control link over a real socket.

use std::sync::Arc;

use gleaner_agent::{Link, LinkTarget, Trust, client_config};
use gleaner_protocol::LeaseToken;
use gleaner_protocol::codec::encode;
use gleaner_protocol::control::{AgentMessage, BrokerMessage, Verdict, encode_frame};
use gleaner_protocol::limits::CONTROL_MESSAGE_BYTES_MAX;
use tokio_rustls::TlsAcceptor;

use crate::Story;
use crate::agent::{AgentThread, Folders, block_on};
use crate::broker::{Broker, command_with, kernel, output};

pub(crate) const STORIES: &[Story] = &[
    ("garbage_ends_the_link_and_the_agent_calls_again", garbage_ends_the_link),
    ("reports_are_kept_until_their_verdict_over_reconnects", reports_are_kept),
    ("a_link_with_tls_and_a_key_carries_work_and_files", a_link_with_tls_and_a_key),
    ("a_link_can_be_played_by_hand", a_link_can_be_played_by_hand),
    ("the_monitor_hears_of_a_hook_at_once", the_monitor_hears_of_a_hook_at_once),
];

fn garbage_ends_the_link() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let _agent = AgentThread::start(folders.config(&broker.address, 1));
        let welcome = BrokerMessage::Welcome { incarnation: 1, adopted: Vec::new() };
        let garbage = [
            Vec::new(),
            vec![0xff; 100],
            vec![1],
            encode(&[AgentMessage::Request { cores: 1 }][..]),
            [encode_frame(std::slice::from_ref(&welcome)), vec![0]].concat(),
            vec![1; CONTROL_MESSAGE_BYTES_MAX + 1],
            // Two welcomes are one too many.
            encode_frame(&[welcome.clone(), welcome.clone()]),
        ];
        for frame in garbage {
            let (mut session, _) = broker.welcome().await;
            session.say_garbage(frame).await;
            session.hear_end().await;
        }
        let mut session = broker.accept().await;
        session.say_text("hello").await;
        session.hear_end().await;
        let (mut session, _) = broker.welcome().await;
        session.perform(kernel("noop"), None).await;
    });
}

fn reports_are_kept() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let agent = AgentThread::start(folders.config(&broker.address, 2));
        let (mut session, _) = broker.welcome().await;
        let tokens = session.give(kernel("noop"), &[None, None]).await;
        let mut first = vec![session.hear_report().await, session.hear_report().await];
        drop(session);
        // Nobody has acknowledged them: they come again, as often as need be.
        for _ in 0..2 {
            let (mut session, hello) = broker.welcome().await;
            assert_eq!(hello.held.iter().map(|held| held.token).collect::<Vec<_>>(), tokens);
            assert!(hello.held.iter().all(|held| !held.state.takes_slot()));
            let mut again = vec![session.hear_report().await, session.hear_report().await];
            again.sort_by_key(|report| report.token);
            first.sort_by_key(|report| report.token);
            assert_eq!(again, first);
        }
        let mut session = broker.accept().await;
        let AgentMessage::Hello(hello) = session.hear().await else { panic!("no hello") };
        assert_eq!(hello.held.len(), 2);
        // The broker wants one of them only.
        session.say(&[BrokerMessage::Welcome { incarnation: 2, adopted: vec![tokens[1]] }]).await;
        // The other one may have been counted: both wait for what became of them.
        let mut again = [session.hear_report().await.token, session.hear_report().await.token];
        again.sort_unstable();
        assert_eq!(again, tokens[..]);
        for (token, verdict) in [(tokens[0], Verdict::OldToken), (tokens[1], Verdict::Counted)] {
            session.say(&[BrokerMessage::Verdict { token, verdict }]).await;
        }
        drop(session);
        let (_session, hello) = broker.welcome().await;
        assert_eq!(hello.held, []);
        drop(agent);
    });
}

fn a_link_with_tls_and_a_key() {
    block_on(async {
        let folders = Folders::new();
        let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("makes");
        let ca_file = folders.path("ca.pem");
        std::fs::write(&ca_file, signed.cert.pem()).expect("written");
        let key = rustls::pki_types::PrivateKeyDer::try_from(signed.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("known")
            .with_no_client_auth()
            .with_single_cert(vec![signed.cert.der().clone()], key.expect("a key"))
            .expect("fits");
        let acceptor = TlsAcceptor::from(Arc::new(server));
        let mut broker = Broker::start_with(Some(acceptor), Some("open-sesame")).await;

        let tls = |trust| Some(Arc::new(client_config(trust).expect("set up")));
        let target = |token: &str, trust| LinkTarget {
            broker: broker.address.clone(),
            credentials: gleaner_identity::Credentials::of_token(Some(token)),
            tls: tls(trust),
        };
        let wrong_token = Link::connect(&target("sesame", Trust::File(&ca_file))).await;
        let error = wrong_token.expect_err("refused").to_string();
        assert!(error.contains("401"), "{error}");
        let stranger = Link::connect(&target("open-sesame", Trust::Nobody)).await;
        assert!(stranger.is_err(), "a certificate that nobody vouches for");

        let key_file = folders.path("key");
        let key = gleaner_identity::KeyPair::generate().expect("made");
        key.write_new(&key_file).expect("written");
        let mut config = folders.config(&broker.address, 1);
        config.ca_file = Some(ca_file);
        config.key_file = Some(key_file);
        let _agent = AgentThread::start(config);
        let (mut session, _) = broker.welcome().await;
        let digest = broker.put(&vec![b'x'; 100_000]);
        let task = command_with(&["/bin/cat", "in"], &[("in", digest)], &[]);
        let report = session.perform(task, None).await;
        assert_eq!(output(&report).files()[0].content.len(), 100_000);
    });
}

fn the_monitor_hears_of_a_hook_at_once() {
    block_on(async {
        let folders = Folders::new();
        let mut broker = Broker::start().await;
        let mut config = folders.config(&broker.address, 4);
        config.monitor = Some(broker.address.clone());
        config.sample_interval_s = 3600;
        let _agent = AgentThread::start(config);
        let first = broker.samples.recv().await.expect("a sample at the start");
        assert_eq!((first.host.as_str(), first.cores, first.replicas), ("render042", 4, 0));
        assert!(first.memory_mib > 0 && first.used_memory_mib <= first.memory_mib);
        assert_eq!(first.bookings, []);
        folders.preflight("r1", Some(3));
        let booked = loop {
            let sample = broker.samples.recv().await.expect("another at once");
            // One may fall between the raised epoch and the booking.
            if sample.epoch.count == 1 && !sample.bookings.is_empty() {
                break sample.bookings;
            }
        };
        assert_eq!(booked.len(), 1);
        assert_eq!((booked[0].booking.as_str(), booked[0].resources.cores), ("r1", Some(3)));
    });
}

fn a_link_can_be_played_by_hand() {
    block_on(async {
        let mut broker = Broker::start().await;
        let link = tokio::spawn({
            let target = LinkTarget::plain(&broker.address);
            async move { Link::connect(&target).await.expect("listens") }
        });
        let mut session = broker.accept().await;
        let mut link = link.await.expect("no panic");
        let asked = [AgentMessage::Request { cores: 3 }, AgentMessage::Request { cores: 4 }];
        link.send(&asked).await.expect("stands");
        assert_eq!([session.hear().await, session.hear().await], asked);
        let token = LeaseToken::new(1);
        let verdict = BrokerMessage::Verdict { token, verdict: Verdict::Late };
        session.say(std::slice::from_ref(&verdict)).await;
        assert_eq!(link.receive().await.expect("stands"), [verdict]);
        drop(session);
        assert!(link.receive().await.is_err());
        let nobody = Link::connect(&LinkTarget::plain("http://127.0.0.1:1")).await;
        assert!(nobody.expect_err("closed").to_string().contains("cannot reach"));
    });
}
