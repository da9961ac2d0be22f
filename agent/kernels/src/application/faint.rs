//! Why a picture shows nothing, or nearly nothing, and what would help.

use std::sync::Arc;

use super::{ApplicationError, Stages};
use crate::isosurface::ExtremesPlan;
use crate::limits::VISIBLE_MIN;
use crate::raycast::{Camera, Transfer};
use crate::volume::Volume;

/// What pictures were taken of, and how.
pub(super) struct Taken<'a> {
    pub(super) volume: Arc<Volume>,
    pub(super) cameras: &'a [Camera],
    pub(super) transfer: &'a Transfer,
    pub(super) opacity_unit: f64,
    /// The greatest opacity of any pixel, from 0 to 1.
    pub(super) opacity: f32,
}

impl Taken<'_> {
    /// Why hardly anything is seen, if that is so.
    pub(super) fn why_faint(
        self,
        stages: &mut Stages<'_>,
    ) -> Result<Option<String>, ApplicationError> {
        if self.opacity >= VISIBLE_MIN {
            return Ok(None);
        }
        if let Some(flat) = one_layer(&self.volume) {
            return Ok(Some(flat));
        }
        let extremes = stages.perform("extremes", ExtremesPlan::new(self.volume.clone()))?;
        if let Some(clear) = self.why_clear(extremes) {
            return Ok(Some(clear));
        }
        let sides = self.sides();
        if !self.cameras.iter().any(|camera| camera.sees(sides)) {
            let [x, y, z] = sides;
            let [a, b, c] = sides.map(|side| two_digits(side / 2.0));
            return Ok(Some(format!(
                "the camera does not see the volume, which is from (0, 0, 0) to ({x}, {y}, {z}): let it \
                 look at its middle, target = [{a:?}, {b:?}, {c:?}]"
            )));
        }
        Ok(Some(self.why_thin(extremes)))
    }

    /// Length of the volume along each axis.
    fn sides(&self) -> [f64; 3] {
        let (size, spacing) = (self.volume.size(), self.volume.spacing());
        [0, 1, 2].map(|axis| (size[axis] - 1) as f64 * spacing[axis])
    }

    /// Why no value of the volume has any opacity.
    fn why_clear(&self, [low, high]: [f32; 2]) -> Option<String> {
        if self.transfer.greatest_opacity(low, high) > 0.0 {
            return None;
        }
        let values = format!("their values are from {low} to {high}");
        Some(match self.transfer.seen_values() {
            Some([from, _]) if high <= from => {
                format!("no voxel is above {from}, where opacity begins in `transfer`: {values}")
            }
            Some([_, to]) if low >= to => {
                format!("no voxel is below {to}, where opacity ends in `transfer`: {values}")
            }
            Some(_) => format!("`transfer` gives voxels no opacity: {values}"),
            None => format!("`transfer` has no point with an opacity above 0: {values}"),
        })
    }

    /// Which unit of opacity would do.
    fn why_thin(&self, [low, high]: [f32; 2]) -> String {
        let unit = self.opacity_unit;
        // What a ray lets through is a power of one over the unit.
        let seen = f64::from(self.opacity);
        let depth = if seen > 1e-4 {
            -(-seen).ln_1p()
        } else {
            let opacity = f64::from(self.transfer.greatest_opacity(low, high)).min(0.999);
            let way = self.sides().iter().map(|side| side * side).sum::<f64>().sqrt() / 2.0;
            -(-opacity).ln_1p() * way / unit
        };
        let better = two_digits(unit * depth / std::f64::consts::LN_2);
        format!(
            "hardly anything is to be seen: the greatest opacity of a pixel is {:.4}, for the volume is \
             thin beside opacity_unit = {unit:?}; with opacity_unit = {better:?} it is about a half",
            self.opacity
        )
    }
}

/// That a volume has one layer along some axis, if it has.
pub(super) fn one_layer(volume: &Volume) -> Option<String> {
    let flat = ["x", "y", "z"].into_iter().zip(volume.size()).filter(|(_, side)| *side == 1);
    let flat: Vec<&str> = flat.map(|(axis, _)| axis).collect();
    let axes = flat.join(" and ");
    (!flat.is_empty()).then(|| format!("the volume has one layer along {axes}, which has no cells"))
}

/// A number as it is written with two digits.
fn two_digits(number: f64) -> f64 {
    format!("{number:.1e}").parse().unwrap_or(number)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::tests::run_in;
    use super::super::{Application, Task};
    use crate::preempt::Preempt;

    /// A look at a volume of 12 x 10 x 8 voxels so far apart, and of these values.
    fn said(
        folder: &Path,
        header: &str,
        values: [i16; 2],
        unit: &str,
        spec: &[(&str, &str)],
    ) -> String {
        let voxels: Vec<u8> =
            (0..960).flat_map(|at| values[usize::from(at % 12 > 5)].to_le_bytes()).collect();
        let header = format!(
            "NRRD0005\ntype: short\ndimension: 3\nendian: little\nencoding: raw\n{header}\n\n"
        );
        fs::write(folder.join("v.nrrd"), [header.as_bytes(), &voxels].concat()).expect("written");
        let mut text = format!(
            "volume = \"v.nrrd\"\npicture = \"v.png\"\nsize = [16, 16]\nopacity_unit = {unit}\n\
             [camera]\neye = [30.7, 21.3, 38.3]\ntarget = [5.5, 4.5, 3.5]\nup = [0.0, 1.0, 0.0]\n\
             height = 24.0\n\
             [[transfer]]\nvalue = 40.0\ncolour = [0.2, 0.5, 1.0]\nopacity = 0.0\n\
             [[transfer]]\nvalue = 160.0\ncolour = [1.0, 0.8, 0.4]\nopacity = 0.6\n"
        );
        for (from, to) in spec {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        let ran = run_in(folder, Application::Volume, &text, &Preempt::new()).expect("a picture");
        assert!(Task::parse(Application::Volume, &text, folder).is_ok());
        ran.summary.join("; ")
    }

    const PLAIN: &str = "sizes: 12 10 8";

    #[test]
    fn a_picture_that_shows_something_has_nothing_to_explain() {
        let folder = tempfile::tempdir().expect("a folder");
        let said = said(folder.path(), PLAIN, [0, 160], "1.0", &[]);
        assert!(said.ends_with("pixels show something"), "{said}");
    }

    #[test]
    fn a_picture_of_nothing_says_why() {
        let folder = tempfile::tempdir().expect("a folder");
        let said = |header: &str, values, unit: &str, spec: &[(&str, &str)]| {
            said(folder.path(), header, values, unit, spec)
        };
        let flat = said("sizes: 12 80 1", [0, 160], "1.0", &[]);
        assert!(flat.contains("0 of 256 pixels") && flat.contains("one layer along z"), "{flat}");
        let below = said(PLAIN, [-1000, 30], "1.0", &[]);
        let words = "no voxel is above 40, where opacity begins in `transfer`: their values are from \
                     -1000 to 30";
        assert!(below.contains(words), "{below}");
        let turned = [("opacity = 0.0", "opacity = 0.5"), ("opacity = 0.6", "opacity = 0.0")];
        let above = said(PLAIN, [200, 300], "1.0", &turned);
        assert!(above.contains("no voxel is below 160, where opacity ends"), "{above}");
        let none = said(PLAIN, [0, 160], "1.0", &[("opacity = 0.6", "opacity = 0.0")]);
        assert!(none.contains("has no point with an opacity above 0"), "{none}");
        let aside = said(PLAIN, [0, 160], "1.0", &[("target = [5.5", "target = [55000.5")]);
        assert!(aside.contains("the camera does not see the volume"), "{aside}");
        assert!(aside.contains("target = [5.5, 4.5, 3.5]"), "{aside}");
    }

    #[test]
    fn a_picture_that_nobody_sees_says_which_unit_of_opacity_would_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let header = "sizes: 12 10 8\nspacings: 0.001 0.001 0.001";
        let near = [
            ("[30.7, 21.3, 38.3]", "[0.0307, 0.0213, 0.0383]"),
            ("[5.5, 4.5, 3.5]", "[0.0055, 0.0045, 0.0035]"),
            ("height = 24.0", "height = 0.024"),
        ];
        for unit in ["1.0", "1000000.0"] {
            let thin = said(folder.path(), header, [0, 160], unit, &near);
            assert!(thin.contains("hardly anything is to be seen"), "{thin}");
            let better = thin.split("with opacity_unit = ").nth(1).expect("a number");
            let better = better.split(' ').next().expect("a number");
            let seen = said(folder.path(), header, [0, 160], better, &near);
            assert!(seen.ends_with("pixels show something"), "{better}: {seen}");
        }
    }
}
