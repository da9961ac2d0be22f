//! What the hooks of this program have and `gleaner-hook` alone has not: TLS.

use std::io;

use anyhow::Context;
use gleaner_hooks::SecurePost;
use gleaner_protocol::error_chain;

use crate::client::trusting;
use crate::process;

/// In the process that tells the monitor: the hook itself has ended by then.
pub(crate) fn post_through_tls(post: &SecurePost<'_>) -> io::Result<(u16, String)> {
    let told = process::block_on(async {
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(post.limit);
        let http = trusting(http, post.ca_file)?.build().context("cannot set up HTTP")?;
        let request = http.post(post.url).header("content-type", "application/json");
        let request = match post.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let mut answer = request.body(post.body.to_vec()).send().await?;
        let begin = answer.chunk().await.ok().flatten().unwrap_or_default();
        Ok((answer.status().as_u16(), String::from_utf8_lossy(&begin).into_owned()))
    });
    told.map_err(|error| io::Error::other(error_chain(error.as_ref())))
}
