//! Views in a real browser: what people see of a volume that hosts draw for them.
//!
//! `tests/pages/views.js` is the one at the browser; here are the hosts that draw, and the volume.

use std::fs;
use std::path::Path;

use gleaner_protocol::Origin;
use serde_json::json;

use crate::browser::visits;
use crate::pages::{Farm, own};

/// Voxels along each side of the volume: several bricks.
const SIDES: [usize; 3] = [72, 64, 80];
const DATASET: &str = "cloud";

/// A cloud that is thickest in its middle, as an NRRD file.
pub(crate) fn write_cloud(path: &Path, sides: [usize; 3]) {
    let [x, y, z] = sides;
    let mut file = format!(
        "NRRD0004\ntype: float\ndimension: 3\nsizes: {x} {y} {z}\nspacings: 1 1 1\nendian: little\n\
         encoding: raw\n\n"
    )
    .into_bytes();
    for at in 0..x * y * z {
        let place = [at % x, at / x % y, at / (x * y)];
        let [a, b, c] = [0, 1, 2].map(|axis| 2.0 * place[axis] as f32 / sides[axis] as f32 - 1.0);
        let far = (a * a + b * b + c * c).sqrt();
        let value = (1.0 - far).max(0.0) * (1.0 + 0.3 * (7.0 * a).sin() * (6.0 * b).cos());
        file.extend(value.to_le_bytes());
    }
    fs::write(path, file).expect("written");
}

#[tokio::test]
async fn a_volume_is_turned_in_a_browser() {
    let mut farm = Farm::new(0).await;
    for number in 1..=2 {
        let owner = format!("owner{number}");
        let options = ["--chunk-disk-mib", "64", "--owner", &owner];
        farm.cluster.add_host(&format!("desk{number}"), Origin::Desktop, &options);
    }
    farm.cluster.are_connected().await;
    let volume = farm.cluster.folder().join("cloud.nrrd");
    write_cloud(&volume, SIDES);
    let volume = volume.to_str().expect("plain");
    farm.says(&["dataset", "add", volume, "--name", DATASET, "--chunk-mib", "1"]).ok();
    let guest = farm.joined("viewer", "guest");
    let animation = farm.cluster.folder().join("turn.toml");
    let given = json!({
        "admin": farm.says(&["login"]).ok().trim_end(),
        "viewer": own(&guest, &["login"]).ok().trim_end(),
        "dataset": DATASET,
        "animation": animation,
    });
    visits("views.js", given, |word| match word {
        "stop" => farm.cluster.broker.kill(),
        "start" => farm.cluster.restart_broker(),
        _ => panic!("{word}"),
    });
    let saved = fs::read_to_string(&animation).expect("saved");
    assert!(saved.contains("[animation]") && saved.contains("azimuth = 5.0"), "{saved}");
}
