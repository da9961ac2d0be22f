//! Scans of six subjects, in every way to split them.

use gleaner_kernels::npairs::{Design, NpairsPlan, Synthetic};

use super::{Row, done};

pub(super) fn bench() {
    let synthetic = Synthetic { size: [48, 56, 40], ..Synthetic::default() };
    let data = synthetic.series().expect("scans").into_data();
    let design = Design::new(&synthetic.classes(), Some(&synthetic.groups())).expect("a design");
    let size = format!("{} scans of {} voxels, 10 splits", data.rows(), data.columns());
    for components in [2, 20] {
        let plan =
            || NpairsPlan::new(data.clone(), design.clone(), components, 10, 1).expect("a plan");
        let size = format!("{size}, {components} components");
        Row { kernel: "npairs", size: &size }.measure(3, &|| drop(done(plan())));
    }
}
