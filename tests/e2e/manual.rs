//! Manual pages and completions: whether they say what the command line's own help says, and
//! whether the programs that read them take them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use gleaner_calm::Turn;

use crate::program::{gleaner, run};

/// Options and commands that the help of a command names.
fn names_in_help(command: &[&str]) -> (Vec<String>, Vec<String>) {
    let help = run(gleaner(command.iter().copied()).arg("--help")).ok();
    let options = help.lines().filter_map(|line| {
        let mut words = line.split_whitespace().take(2).map(|word| word.trim_matches(','));
        let option = words.find(|word| word.starts_with('-'))?;
        let long = if option.starts_with("--") { option } else { words.next()? };
        line.starts_with("  ").then(|| long.trim_end_matches("...").to_owned())
    });
    let headings = ["Commands:", "Instead of a scenario:"];
    let commands = help.lines().skip_while(|line| !headings.contains(line)).skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let first = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
    let subcommands =
        commands.filter(|line| line.starts_with("  ") && !line.starts_with("   ")).map(first);
    (options.collect(), subcommands.filter(|name| name != "help").collect())
}

/// The commands that help names, each as its words.
fn commands() -> Vec<Vec<String>> {
    let (mut all, mut open) = (Vec::new(), vec![Vec::new()]);
    while let Some(command) = open.pop() {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        for name in names_in_help(&words).1 {
            open.push(command.iter().cloned().chain([name]).collect());
        }
        all.push(command);
    }
    all
}

fn page_of(command: &[String]) -> String {
    let words = std::iter::once("gleaner").chain(command.iter().map(String::as_str));
    format!("{}.1", words.collect::<Vec<_>>().join("-"))
}

/// The text of a page, without what roff has it look like.
fn plain(page: &str) -> String {
    page.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "").replace("\\fI", "")
}

#[test]
fn each_command_has_a_page_with_all_its_options() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("share/man/man1");
    let dir = pages.to_str().expect("plain");
    let said = run(&mut gleaner(["man", dir])).ok();
    let commands = commands();
    assert!(commands.len() > 30, "{commands:?}");
    assert_eq!(said, format!("{} pages in {dir}\n", commands.len()));
    let written = fs::read_dir(&pages).expect("a folder");
    let written: BTreeSet<String> = written
        .map(|entry| entry.expect("listed").file_name().into_string().expect("plain"))
        .collect();
    assert_eq!(written, commands.iter().map(|command| page_of(command)).collect());
    for command in &commands {
        let page = plain(&fs::read_to_string(pages.join(page_of(command))).expect("there"));
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let (options, subcommands) = names_in_help(&words);
        assert!(options.len() > 2, "{words:?}");
        for word in options.iter().chain(&subcommands) {
            assert!(page.contains(word.as_str()), "no {word} in {}:\n{page}", page_of(command));
        }
    }
    let whole = fs::read_to_string(pages.join("gleaner.1")).expect("there");
    assert!(whole.contains("Exit codes:"), "they belong to it");
}

#[test]
fn a_manual_that_cannot_be_written_says_where() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("written");
    let dir = file.join("man1");
    let dir = dir.to_str().expect("plain");
    run(&mut gleaner(["man", dir])).refused(1, &["cannot write manual pages to", dir]);
    run(&mut gleaner(["man"])).refused(2, &["<DIR>"]);
}

#[test]
fn every_shell_has_completions_and_of_nothing_that_is_hidden() {
    let _turn = Turn::shared();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let text = run(&mut gleaner(["completions", shell])).ok();
        for word in ["gametree", "on-release", "uninstall", "nodes-are-ready"] {
            assert!(text.contains(word), "{shell}: no {word}");
        }
        for hidden in ["demo-render", "watch", "notify"] {
            let is_part = |c: char| c.is_alphanumeric() || "-_".contains(c);
            let found = text
                .lines()
                .find(|line| line.split(|c: char| !is_part(c)).any(|word| word == hidden));
            assert_eq!(found, None, "{shell} shows {hidden}");
        }
    }
    run(&mut gleaner(["completions", "tcsh"])).refused(2, &["tcsh", "bash", "zsh"]);
}

/// What bash would offer after these words.
fn offered(script: &Path, words: &[&str]) -> BTreeSet<String> {
    let ask = "source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
               _gleaner gleaner \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"; \
               printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", ask, "bash"]).arg(script).args(words);
    run(&mut bash).ok().lines().map(String::from).collect()
}

#[test]
fn bash_completes_commands_options_and_values() {
    let _turn = Turn::shared();
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("gleaner");
    fs::write(&script, run(&mut gleaner(["completions", "bash"])).ok()).expect("written");
    let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    assert_eq!(offered(&script, &["gleaner", "ex"]), set(&["explain"]));
    assert_eq!(offered(&script, &["gleaner", "farm", "in"]), set(&["install"]));
    assert_eq!(
        offered(&script, &["gleaner", "farm", "install", "--no"]),
        set(&["--node", "--nodes-are-ready"])
    );
    assert_eq!(offered(&script, &["gleaner", "completions", "z"]), set(&["zsh"]));
}
