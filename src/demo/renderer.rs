//! What the demo's farm renders with.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};

use super::frame::Size;
use crate::failure::Failure;

/// Which renderer to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RenderChoice {
    /// A ray-cast of the electron density of a protein; built in.
    Volume,
    /// Scenes that come with POV-Ray, which must be installed.
    Povray,
}

/// A renderer that is there.
#[derive(Debug)]
pub(super) enum Renderer {
    Volume,
    Povray { scenes: Vec<PathBuf> },
}

/// Where the package povray-examples puts its scenes.
const SCENES: &str = "/usr/share/doc/povray/examples/advanced";
/// Those that look the same each time they are rendered.
const SCENE_NAMES: [&str; 3] = ["isocacti.pov", "abyss.pov", "chess2.pov"];
/// Takes POV-Ray about a second of CPU time.
const SCENE_SIZE: Size = Size { width: 128, height: 96 };

impl Renderer {
    /// Finds the chosen one on this machine.
    pub(super) fn find(choice: RenderChoice) -> anyhow::Result<Self> {
        if choice == RenderChoice::Volume {
            return Ok(Self::Volume);
        }
        let found = Command::new("povray").arg("--version").output();
        if found.is_err() {
            let missing = "--render povray needs POV-Ray: install the packages povray and \
                           povray-examples (apt-get install povray povray-examples)";
            return Err(Failure::Usage(missing.into()).into());
        }
        let scenes: Vec<PathBuf> =
            SCENE_NAMES.iter().map(|name| Path::new(SCENES).join(name)).collect();
        if let Some(missing) = scenes.iter().find(|scene| !scene.is_file()) {
            let missing = format!(
                "--render povray needs the scene {}: install the package povray-examples",
                missing.display()
            );
            return Err(Failure::Usage(missing).into());
        }
        Ok(Self::Povray { scenes })
    }

    /// What it renders, for people.
    pub(super) const fn subject(&self) -> &'static str {
        match self {
            Self::Volume => "electron density of a protein",
            Self::Povray { .. } => "scenes of POV-Ray",
        }
    }

    /// The size of pictures that does not depend on how fast this machine is, if there is one.
    pub(super) const fn fixed_size(&self) -> Option<Size> {
        match self {
            Self::Volume => None,
            Self::Povray { .. } => Some(SCENE_SIZE),
        }
    }

    /// The process that renders a frame to a PNG file.
    pub(super) fn command(
        &self,
        program: &Path,
        frame: u32,
        size: Size,
        threads: u32,
        output: &Path,
    ) -> Command {
        let mut command = Command::new(program);
        command.arg("demo-render");
        for (flag, value) in [
            ("--frame", frame.to_string()),
            ("--width", size.width.to_string()),
            ("--height", size.height.to_string()),
            ("--threads", threads.to_string()),
        ] {
            command.args([flag, &value]);
        }
        command.arg("--output").arg(output);
        if let Self::Povray { scenes } = self {
            command.arg("--povray").arg(&scenes[frame as usize % scenes.len()]);
        }
        command
    }
}

/// Whether two PNG files show the same pixels; what else they hold, such as a date, is nothing.
pub(super) fn same_pixels(one: &Path, other: &Path) -> anyhow::Result<bool> {
    Ok(pixels(one)? == pixels(other)?)
}

/// Longest side of a picture that is read back.
const SIDE_MAX: u32 = 4096;

fn pixels(path: &Path) -> anyhow::Result<(u32, u32, Vec<u8>)> {
    let read = || -> anyhow::Result<_> {
        let mut reader = png::Decoder::new(BufReader::new(File::open(path)?)).read_info()?;
        let (width, height) = (reader.info().width, reader.info().height);
        if width.max(height) > SIDE_MAX {
            bail!("{width} x {height} pixels are too many");
        }
        let mut pixels = vec![0; reader.output_buffer_size().context("too large a picture")?];
        let bytes = reader.next_frame(&mut pixels)?.buffer_size();
        pixels.truncate(bytes);
        Ok((width, height, pixels))
    };
    read().with_context(|| format!("cannot read frame {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::super::frame;
    use super::*;

    #[test]
    fn one_different_pixel_is_seen() {
        let folder = tempfile::tempdir().expect("a folder");
        let size = Size { width: 4, height: 3 };
        let write = |name: &str, pixels: &[u8]| {
            let path = folder.path().join(name);
            frame::write_png(pixels, size, File::create(&path).expect("a file")).expect("a frame");
            path
        };
        let mut pixels = vec![100; 36];
        let one = write("one.png", &pixels);
        assert!(same_pixels(&one, &write("same.png", &pixels)).expect("two frames"));
        pixels[17] += 1;
        assert!(!same_pixels(&one, &write("other.png", &pixels)).expect("two frames"));
        let error = same_pixels(&one, &folder.path().join("none.png")).expect_err("no file");
        assert!(error.to_string().contains("none.png"), "{error}");
    }
}
