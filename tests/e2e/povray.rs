//! Frames of POV-Ray's: a farm's renders, compared pixel by pixel with the same ones rendered alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::program::run;

/// Of a frame, in pixels.
const WIDTH: usize = 320;
const HEIGHT: usize = 240;

/// A ball that goes round with the clock.
const SCENE: &str = "\
    camera { location <0, 2, -6> look_at 0 }\n\
    light_source { <4, 6, -5> rgb 1 }\n\
    plane { y, -1 pigment { checker rgb 0.2 rgb 0.9 } finish { reflection 0.2 } }\n\
    sphere { <2, 0, 0>, 1 pigment { rgb <0.9, 0.3, 0.1> } finish { phong 0.8 } rotate 360 * clock * y }\n";

/// An animation, each frame of which is there already as it looks when nobody disturbs it.
pub(crate) struct Animation {
    folder: TempDir,
    frames: usize,
}

impl Animation {
    /// Renders it alone. Whoever renders it again may write beside that.
    pub(crate) fn new(frames: usize) -> Self {
        let folder = tempfile::Builder::new().prefix("frames-").tempdir().expect("a folder");
        let all = fs::Permissions::from_mode(0o777);
        fs::set_permissions(folder.path(), all).expect("allowed");
        let animation = Self { folder, frames };
        fs::write(animation.path("scene.pov"), SCENE).expect("written");
        for number in 0..frames {
            run(Command::new("povray").args(animation.arguments("alone", number))).ok();
        }
        animation
    }

    /// Program and arguments that render one of its frames again.
    pub(crate) fn command(&self, number: usize) -> Vec<String> {
        let mut command = vec!["povray".to_owned()];
        command.extend(self.arguments("again", number));
        command
    }

    /// What was rendered again is what was rendered alone, and no frame is as the first.
    #[track_caller]
    pub(crate) fn is_the_same(&self) {
        for number in 0..self.frames {
            let (alone, again) = (self.pixels("alone", number), self.pixels("again", number));
            assert!(alone == again, "frame {number} is another one");
            assert!(number == 0 || alone != self.pixels("alone", 0), "frames differ");
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn frame(&self, how: &str, number: usize) -> PathBuf {
        self.path(&format!("{how}-{number}.ppm"))
    }

    /// For pixels and nothing else.
    fn arguments(&self, how: &str, number: usize) -> Vec<String> {
        let (scene, frame) = (self.path("scene.pov"), self.frame(how, number));
        let clock = number as f64 / self.frames as f64;
        let shown = Path::display;
        let files = [format!("+I{}", shown(&scene)), format!("+O{}", shown(&frame))];
        let size = [format!("+W{WIDTH}"), format!("+H{HEIGHT}"), format!("+K{clock}")];
        let how = ["-A", "+FP8", "+WT2", "-D", "-GA"].map(str::to_owned);
        files.into_iter().chain(size).chain(how).collect()
    }

    fn pixels(&self, how: &str, number: usize) -> Vec<u8> {
        let file = fs::read(self.frame(how, number)).expect("rendered");
        // What stands before them has the date.
        file[file.len() - WIDTH * HEIGHT * 3..].to_vec()
    }
}
