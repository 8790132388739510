// SPDX-License-Identifier: MPL-2.0

//! Man pages and shell completions, generated from the definition of the command line.
//!
//! Examples and files of the commands come from the folder `man`. The page of the file of channels has the options of
//! `monitor` as keys.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::{Arg, Command, CommandFactory, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::Cli;
use score::error::Error;

/// Pages with the text that follows the description of the command line.
const PAGES: [(&str, &str); 13] = [
    ("hipvmaf", include_str!("../man/hipvmaf.roff")),
    ("hipvmaf-score", include_str!("../man/hipvmaf-score.roff")),
    ("hipvmaf-monitor", include_str!("../man/hipvmaf-monitor.roff")),
    ("hipvmaf-archive", include_str!("../man/hipvmaf-archive.roff")),
    ("hipvmaf-archive-plan", include_str!("../man/hipvmaf-archive-plan.roff")),
    ("hipvmaf-archive-run", include_str!("../man/hipvmaf-archive-run.roff")),
    ("hipvmaf-archive-submit", include_str!("../man/hipvmaf-archive-submit.roff")),
    ("hipvmaf-archive-merge", include_str!("../man/hipvmaf-archive-merge.roff")),
    ("hipvmaf-archive-status", include_str!("../man/hipvmaf-archive-status.roff")),
    ("hipvmaf-devices", include_str!("../man/hipvmaf-devices.roff")),
    ("hipvmaf-models", include_str!("../man/hipvmaf-models.roff")),
    ("hipvmaf-check", include_str!("../man/hipvmaf-check.roff")),
    ("hipvmaf-bench", include_str!("../man/hipvmaf-bench.roff")),
];

/// The page of the file of channels: what comes before the keys, and after them.
const CHANNELS: [&str; 2] =
    [include_str!("../man/hipvmaf-channels.5.roff"), include_str!("../man/hipvmaf-channels.5.end.roff")];

/// Options of `monitor` that are no keys of a channel.
const OF_MONITOR: [&str; 12] = [
    "config",
    "test_webhook",
    "check_config",
    "listen",
    "token_file",
    "state",
    "keep",
    "incident_size",
    "log",
    "plain",
    "latency",
    "duration",
];

/// Writes a page for the program, for each command and for the file of channels, and a file for each shell.
pub fn write(folder: &Path) -> Result<(), Error> {
    let [man, completions] = ["man", "completions"].map(|name| folder.join(name));
    for folder in [&man, &completions] {
        fs::create_dir_all(folder).map_err(|error| format!("cannot create {}: {error}", folder.display()))?;
    }
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    pages(&program, &man)?;
    if let Some(monitor) = program.find_subcommand("monitor") {
        fs::write(man.join("hipvmaf-channels.5"), channels(monitor)?)?;
    }
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut Cli::command(), "hipvmaf", &completions)?;
    }
    Ok(())
}

/// Writes the pages of a command and of those below it.
fn pages(command: &Command, folder: &Path) -> Result<(), Error> {
    let page = Man::new(command.clone());
    let mut text = vec![];
    page.render(&mut text)?;
    let name = command.get_display_name().unwrap_or(command.get_name());
    let more = PAGES.iter().find(|(of, _)| *of == name).map_or("", |(_, text)| text);
    text.extend_from_slice(more.as_bytes());
    text.extend_from_slice(see_also(name, command).as_bytes());
    fs::write(folder.join(page.get_filename()), text)?;
    command.get_subcommands().filter(|command| !command.is_hide_set()).try_for_each(|of| pages(of, folder))
}

/// Returns the section with the pages of the command above, of those below, and of what belongs to them.
fn see_also(name: &str, command: &Command) -> String {
    let above = name.rsplit_once('-').map(|(above, _)| above.to_owned());
    let below = command.get_subcommands().filter(|command| !command.is_hide_set());
    let below = below.map(|of| of.get_display_name().unwrap_or(of.get_name()).to_owned());
    let mut pages: Vec<_> = above.into_iter().chain(below).map(|page| (page, 1)).collect();
    match name {
        "hipvmaf" => pages.extend([("hipvmaf-channels".into(), 5), ("gst-inspect-1.0".into(), 1)]),
        "hipvmaf-monitor" => pages.push(("hipvmaf-channels".into(), 5)),
        _ => {}
    }
    let pages: Vec<_> =
        pages.iter().map(|(page, section)| format!(".BR {} ({section})", escaped(page))).collect();
    format!(".SH \"SEE ALSO\"\n{}\n", pages.join(",\n"))
}

/// Returns the page of the file of channels.
fn channels(monitor: &Command) -> Result<String, Error> {
    let [before, after] = CHANNELS;
    let mut title = vec![];
    let page = Command::new("hipvmaf-channels").version(env!("CARGO_PKG_VERSION"));
    Man::new(page).section("5").render_title(&mut title)?;
    let mut text = String::from_utf8_lossy(&title).into_owned();
    text.push_str(".SH NAME\nhipvmaf\\-channels \\- channels that hipvmaf monitor watches\n");
    text.push_str(before);
    let is_key = |arg: &&Arg| {
        arg.get_long().is_some_and(|name| name != "help") && !OF_MONITOR.contains(&arg.get_id().as_str())
    };
    for arg in monitor.get_arguments().filter(is_key) {
        let key = arg.get_id().as_str().replace('_', "-");
        let value = arg.get_value_names().unwrap_or_default().first().map(ToString::to_string);
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        // Writing to a string does not fail.
        let _ = write!(
            text,
            ".TP\n.BR {} \" \" \\fI{}\\fP\n{}\n",
            escaped(&key),
            escaped(&value.unwrap_or_default()),
            escaped(&help)
        );
    }
    text.push_str(after);
    text.push_str(".SH \"SEE ALSO\"\n.BR hipvmaf\\-monitor (1)\n");
    Ok(text)
}

/// Returns a text for a line of roff.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('\n', " ");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_examples() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        let files = fs::read_dir(folder.path().join("man")).unwrap().map(|file| file.unwrap().path());
        let pages: Vec<_> = files.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect();
        assert_eq!(pages.len(), PAGES.len() + 1);
        for (path, text) in pages {
            let missing = [".SH EXAMPLES", ".SH \"SEE ALSO\"\n.BR hipvmaf"];
            let missing = missing.iter().find(|part| !text.contains(*part));
            assert!(missing.is_none(), "{} lacks {missing:?}: {text}", path.display());
        }
    }

    #[cfg(feature = "monitor")]
    #[test]
    fn the_page_of_channels_has_all_keys_and_no_others() {
        let program = Cli::command();
        let text = channels(program.find_subcommand("monitor").unwrap()).unwrap();
        for key in ["models", "alarm\\-low", "freeze", "webhook", "set"] {
            assert!(text.contains(&format!(".BR {key} ")), "{key}: {text}");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let keys = text.lines().filter_map(|line| line.strip_prefix(".BR ")?.split_once(" \" \" "));
        for key in keys.map(|(key, _)| key.replace("\\-", "-")) {
            fs::write(file.path(), format!("[defaults]\n{key} = []\n[[channel]]\nname = \"a\"\n")).unwrap();
            let args = ["hipvmaf", "monitor", "--check-config", file.path().to_str().unwrap()];
            let error = crate::run(&<Cli as clap::Parser>::parse_from(args).command).unwrap_err();
            assert!(!error.to_string().contains("unknown field"), "{key}: {error}");
        }
    }
}
