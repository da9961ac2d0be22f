//! Which axes of an NRRD file are axes of space.
//!
//! A volume has three. An axis whose samples are the parts of one value (colours, vectors, matrices) is
//! none of them; taken for one, it would give a picture of something that is not there.
//!
//! Source: Definition of NRRD File Format, Teem.

use super::file::ReadError;

/// What a header says of its axes, one entry for each.
#[derive(Debug, Default)]
pub(super) struct AxisFields {
    pub(super) dimension: Option<usize>,
    pub(super) sizes: Option<Vec<usize>>,
    pub(super) kinds: Option<Vec<String>>,
    pub(super) spacings: Option<Vec<f64>>,
    /// None of an axis that has no direction in space.
    pub(super) directions: Option<Vec<Option<Vec<f64>>>>,
    pub(super) space_dimension: Option<usize>,
}

/// What an axis is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Meaning {
    /// One of space.
    Space,
    /// Nothing is said.
    Unknown,
    /// One sample, by definition.
    Single,
    /// Something else, and what says so.
    Other { what: String, by: String },
}

/// The axes of space.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SpaceAxes {
    pub(super) size: [usize; 3],
    pub(super) spacing: [f64; 3],
}

impl AxisFields {
    /// The three axes of space. One of a single sample that is more than three is left out.
    ///
    /// # Errors
    /// There are not three.
    pub(super) fn space_axes(&self) -> Result<SpaceAxes, ReadError> {
        let missing = |field: &str| ReadError::header(format!("no `{field}`"));
        let dimension = self.dimension.ok_or_else(|| missing("dimension"))?;
        let sizes = self.sizes.as_deref().ok_or_else(|| missing("sizes"))?;
        let counts = [
            ("sizes", Some(sizes.len())),
            ("kinds", self.kinds.as_ref().map(Vec::len)),
            ("spacings", self.spacings.as_ref().map(Vec::len)),
            ("space directions", self.directions.as_ref().map(Vec::len)),
        ];
        for (field, count) in counts {
            if let Some(count) = count.filter(|count| *count != dimension) {
                return Err(ReadError::header(format!(
                    "`{field}` has {count} entries, and `dimension` is {dimension}: give one for \
                     each axis"
                )));
            }
        }
        let meanings: Vec<Meaning> =
            (0..dimension).map(|axis| self.meaning(axis, sizes[axis])).collect();
        let mut left: Vec<usize> = Vec::new();
        for (axis, meaning) in meanings.iter().enumerate() {
            match meaning {
                Meaning::Other { what, by } if sizes[axis] > 1 || dimension <= 3 => {
                    return Err(not_of_space([axis, dimension], sizes[axis], what, by));
                }
                Meaning::Other { .. } => {}
                _ => left.push(axis),
            }
        }
        let is_extra = |axis: &usize| sizes[*axis] == 1 && meanings[*axis] != Meaning::Space;
        while left.len() > 3 {
            if left.last().is_some_and(is_extra) {
                left.pop();
            } else if left.first().is_some_and(is_extra) {
                left.remove(0);
            } else {
                break;
            }
        }
        let Ok(axes) = <[usize; 3]>::try_from(left) else {
            return Err(wrong_dimension(dimension, sizes));
        };
        if let Some(space) = self.space_dimension.filter(|space| *space < 3) {
            return Err(ReadError::header(format!(
                "`space dimension` is {space}, and three of the axes are taken for space: say in \
                 `kinds` what each of the {dimension} axes is (`domain` for one of space), or correct \
                 `space dimension`"
            )));
        }
        Ok(SpaceAxes { size: axes.map(|axis| sizes[axis]), spacing: self.spacing(axes)? })
    }

    /// What an axis with so many samples is.
    fn meaning(&self, axis: usize, size: usize) -> Meaning {
        let by_kind = self.kinds.as_ref().map(|kinds| {
            let kind = kinds[axis].to_ascii_lowercase();
            let by = format!("kinds: {}", kinds.join(" "));
            of_kind(&kind, size, by)
        });
        match by_kind {
            Some(other @ (Meaning::Other { .. } | Meaning::Single)) => return other,
            Some(Meaning::Space | Meaning::Unknown) | None => {}
        }
        if let Some(directions) = &self.directions
            && directions[axis].is_none()
            && directions.iter().any(Option::is_some)
        {
            let by = "`space directions` has none for it".to_owned();
            return Meaning::Other { what: "not one of space".to_owned(), by };
        }
        if let Some(by_kind) = by_kind.filter(|meaning| *meaning == Meaning::Space) {
            return by_kind;
        }
        if let (Some(spacings), None) = (&self.spacings, &self.directions)
            && spacings[axis].is_nan()
            && !spacings.iter().all(|spacing| spacing.is_nan())
        {
            let by = "`spacings` has nan for it".to_owned();
            return Meaning::Other { what: "not one of space".to_owned(), by };
        }
        match &self.directions {
            Some(directions) if directions[axis].is_some() => Meaning::Space,
            _ => Meaning::Unknown,
        }
    }

    /// How far voxels are apart along three axes.
    fn spacing(&self, axes: [usize; 3]) -> Result<[f64; 3], ReadError> {
        let Some(directions) = &self.directions else {
            let of = |axis: usize| self.spacings.as_ref().map_or(1.0, |spacings| spacings[axis]);
            return Ok(axes.map(of));
        };
        let vectors = axes.map(|axis| directions[axis].as_deref().unwrap_or_default());
        let numbers = self.space_dimension.unwrap_or(vectors[0].len());
        if vectors.iter().any(|vector| vector.len() != numbers) {
            return Err(ReadError::header(format!(
                "space directions: give each vector {} numbers, as many as space has dimensions",
                numbers.max(3)
            )));
        }
        check_right_angles(vectors)?;
        Ok(vectors.map(length))
    }
}

/// What an axis of some kind is.
fn of_kind(kind: &str, size: usize, by: String) -> Meaning {
    let what = match kind {
        "domain" | "space" => return Meaning::Space,
        "???" | "none" | "unknown" => return Meaning::Unknown,
        "stub" | "scalar" if size == 1 => return Meaning::Single,
        "time" => "time",
        "list" | "point" | "stub" | "scalar" => "a list of values",
        "complex" => "complex numbers",
        "quaternion" => "quaternions",
        kind if kind.contains("color") || kind.contains("colour") => "colours",
        kind if kind.contains("matrix") => "matrices",
        kind if ["vector", "gradient", "normal"].iter().any(|end| kind.contains(end)) => "vectors",
        _ => "of a kind that is not known",
    };
    Meaning::Other { what: what.to_owned(), by }
}

/// That one axis is none of space.
fn not_of_space([axis, dimension]: [usize; 2], size: usize, what: &str, by: &str) -> ReadError {
    let by: String = by.chars().take(200).collect();
    let cure = if dimension > 3 {
        format!("take one of its {size} samples out (`unu slice -a {axis} -p 0`)")
    } else {
        "this file is a plane of such samples and no volume".to_owned()
    };
    ReadError::header(format!(
        "axis {} of {dimension} is {what} ({by}), and a volume has three axes of space: {cure}; if it \
         is an axis of space, write `domain` for it in `kinds`",
        axis + 1
    ))
}

/// That there are more axes of space than three, or fewer.
fn wrong_dimension(dimension: usize, sizes: &[usize]) -> ReadError {
    let sizes: Vec<String> = sizes.iter().take(16).map(usize::to_string).collect();
    let cure = if dimension < 3 {
        "of a picture make a volume of one layer (`dimension: 3`, a third size of 1)"
    } else {
        "take a volume out of it (`unu slice`)"
    };
    ReadError::header(format!(
        "`dimension` is {dimension}, of sizes {}, and a volume has three axes of space: {cure}",
        sizes.join(" ")
    ))
}

/// One vector for each axis, such as `none (1,0,0) (0,1,0) (0,0,2.5)`; none where the text is no such
/// list.
pub(super) fn vectors(text: &str) -> Option<Vec<Option<Vec<f64>>>> {
    let mut vectors = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        if let Some(word) = rest.get(..4).filter(|word| word.eq_ignore_ascii_case("none")) {
            vectors.push(None);
            rest = rest[word.len()..].trim_start();
            continue;
        }
        let (numbers, after) = rest.strip_prefix('(')?.split_once(')')?;
        let numbers: Option<Vec<f64>> =
            numbers.split(',').map(|number| number.trim().parse().ok()).collect();
        // Some programs write NaN for the direction of an axis that has none.
        vectors.push(Some(numbers?).filter(|numbers| !numbers.iter().all(|n| n.is_nan())));
        rest = after.trim_start();
    }
    Some(vectors)
}

fn length(vector: &[f64]) -> f64 {
    vector.iter().map(|number| number * number).sum::<f64>().sqrt()
}

/// Refuses axes that lean towards each other: voxels are taken to be apart along three axes at right
/// angles.
fn check_right_angles(vectors: [&[f64]; 3]) -> Result<(), ReadError> {
    for [a, b] in [[0, 1], [0, 2], [1, 2]] {
        let (one, other) = (vectors[a], vectors[b]);
        let lengths = [length(one), length(other)];
        let shares =
            one.iter().zip(other).map(|(one, other)| one / lengths[0] * (other / lengths[1]));
        let cosine: f64 = shares.sum();
        // A vector without a direction has no length, or none that is a number, which is told of it.
        if cosine.abs() > COSINE_MAX {
            let [a, b] = [a, b].map(|axis| ["x", "y", "z"][axis]);
            let degrees = libm::acos(cosine.clamp(-1.0, 1.0)).to_degrees();
            return Err(ReadError::header(format!(
                "space directions: {a} and {b} are {degrees:.2} degrees apart, and axes at right angles \
                 are read: resample it to such"
            )));
        }
    }
    Ok(())
}

/// How far axes may be from right angles: what rounding to four digits makes of them.
const COSINE_MAX: f64 = 1e-3;

#[cfg(test)]
mod tests {
    use super::super::read_nrrd;

    /// What comes of a file with these lines about its axes.
    fn read(axes: &str, samples: usize) -> Result<([usize; 3], [f64; 3]), String> {
        let header = format!("NRRD0005\ntype: uint8\n{axes}encoding: raw\n\n");
        let file = [header.as_bytes(), &vec![7; samples]].concat();
        read_nrrd(&file[..])
            .map(|volume| (volume.size(), volume.spacing()))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn an_axis_that_is_no_space_is_refused_by_its_kind_wherever_it_stands() {
        for (kind, what) in [
            ("RGB-color", "colours"),
            ("rgba-color", "colours"),
            ("3-color", "colours"),
            ("HSV-color", "colours"),
            ("vector", "vectors"),
            ("covariant-vector", "vectors"),
            ("3-gradient", "vectors"),
            ("3-normal", "vectors"),
            ("list", "a list of values"),
            ("point", "a list of values"),
            ("complex", "complex numbers"),
            ("quaternion", "quaternions"),
            ("3D-symmetric-matrix", "matrices"),
            ("2D-masked-matrix", "matrices"),
            ("time", "time"),
            ("scalar", "a list of values"),
            ("colourful", "colours"),
            ("strange", "of a kind that is not known"),
        ] {
            for (kinds, axis) in [
                (format!("{kind} domain domain"), 1),
                (format!("domain {kind} domain"), 2),
                (format!("space space {kind}"), 3),
            ] {
                let axes = format!("dimension: 3\nsizes: 3 3 3\nkinds: {kinds}\n");
                let told = read(&axes, 27).expect_err("refused");
                let words = format!("axis {axis} of 3 is {what} (kinds: {kinds})");
                assert!(told.contains(&words), "{told}");
                assert!(told.contains("write `domain` for it in `kinds`"), "{told}");
            }
        }
        let of_four = "dimension: 4\nsizes: 3 2 2 2\nkinds: vector domain domain domain\n";
        let told = read(of_four, 24).expect_err("refused");
        assert!(told.contains("`unu slice -a 0 -p 0`"), "{told}");
    }

    #[test]
    fn an_axis_that_is_no_space_is_refused_by_what_else_says_so() {
        for (lines, by) in [
            ("space dimension: 2\nspace directions: none (1,0) (0,1)\n", "`space directions`"),
            ("space directions: (1,0,0) (0,1,0) none\n", "`space directions`"),
            ("space directions: (nan,nan,nan) (0,1,0) (0,0,1)\n", "`space directions`"),
            ("spacings: nan 1 1\n", "`spacings` has nan"),
            ("spacings: 0.5 0.5 NaN\n", "`spacings` has nan"),
            ("kinds: ??? ??? ???\nspacings: nan 1 1\n", "`spacings` has nan"),
            ("space dimension: 2\n", "`space dimension` is 2"),
            ("space dimension: 3\nspace directions: (1,0) (0,1) (1,1)\n", "3 numbers"),
        ] {
            let told =
                read(&format!("dimension: 3\nsizes: 3 2 2\n{lines}"), 12).expect_err("refused");
            assert!(told.contains(by) && told.contains("space"), "{lines}: {told}");
        }
    }

    #[test]
    fn an_axis_of_one_sample_that_is_one_more_than_three_is_left_out() {
        let plain = ([2, 3, 4], [1.0; 3]);
        for axes in [
            "dimension: 4\nsizes: 2 3 4 1\n",
            "dimension: 4\nsizes: 1 2 3 4\n",
            "dimension: 5\nsizes: 1 2 3 4 1\n",
            "dimension: 4\nsizes: 2 3 4 1\nkinds: domain domain domain list\n",
            "dimension: 4\nsizes: 2 3 4 1\nkinds: domain domain domain time\n",
            "dimension: 4\nsizes: 1 2 3 4\nkinds: vector domain domain domain\n",
            "dimension: 4\nsizes: 1 2 3 4\nkinds: stub domain domain domain\n",
            "dimension: 4\nsizes: 2 1 3 4\nkinds: domain vector ??? ???\nspacings: 1 nan 1 1\n",
            "dimension: 4\nsizes: 2 3 4 1\nspace directions: (1,0,0) (0,1,0) (0,0,1) none\n",
            "dimension: 4\nsizes: 1 2 3 4\nspace directions: None (1, 0, 0) (0,1,0) (0,0,1)\n",
            "dimension: 3\nsizes: 2 3 4\nkinds: domain space ???\n",
        ] {
            assert_eq!(read(axes, 24), Ok(plain), "{axes}");
        }
        for axes in [
            "dimension: 4\nsizes: 2 3 4 1\nkinds: domain domain domain domain\n",
            "dimension: 4\nsizes: 2 3 1 4\n",
            "dimension: 2\nsizes: 4 6\n",
        ] {
            let told = read(axes, 24).expect_err("refused");
            assert!(told.contains("a volume has three axes of space"), "{axes}: {told}");
        }
        // One layer is a volume still.
        let flat = read("dimension: 3\nsizes: 4 6 1\nkinds: domain domain stub\n", 24);
        assert_eq!(flat, Ok(([4, 6, 1], [1.0; 3])));
    }

    #[test]
    fn lists_that_are_not_of_all_axes_are_told() {
        for lines in ["sizes: 2 2", "sizes: 2 2 2\nkinds: domain", "sizes: 2 2 2\nspacings: 1 1"] {
            let told = read(&format!("dimension: 3\n{lines}\n"), 8).expect_err("refused");
            assert!(told.contains("entries, and `dimension` is 3"), "{told}");
        }
        let told = read("sizes: 2 2 2\n", 8).expect_err("refused");
        assert!(told.contains("no `dimension`"), "{told}");
        // What is not known of an axis that is one of space is not made up.
        let unknown = "dimension: 3\nsizes: 2 2 2\nkinds: space space space\nspacings: 1 nan 1\n";
        let told = read(unknown, 8).expect_err("refused");
        assert!(told.contains("give three distances"), "{told}");
    }
}
