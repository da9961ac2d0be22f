//! Scans of six subjects, in every way to split them; on a GPU those of thirty subjects, or, where
//! it is only software, of four small ones.

use gleaner_kernels::npairs::{Design, NpairsPlan, Synthetic};
use gleaner_kernels::pca::Matrix;

use super::{Row, done};

/// Scans and what was done in them.
pub(super) fn scans(synthetic: &Synthetic) -> (Matrix, Design) {
    let design = Design::new(&synthetic.classes(), Some(&synthetic.groups())).expect("a design");
    (synthetic.series().expect("scans").into_data(), design)
}

fn size(data: &Matrix, components: usize) -> String {
    let (scans, voxels) = (data.rows(), data.columns());
    format!("{scans} scans of {voxels} voxels, 10 splits, {components} components")
}

pub(super) fn bench() {
    let (data, design) = scans(&Synthetic { size: [48, 56, 40], ..Synthetic::default() });
    for components in [2, 20] {
        let plan =
            || NpairsPlan::new(data.clone(), design.clone(), components, 10, 1).expect("a plan");
        let size = size(&data, components);
        Row { kernel: "npairs", size: &size }.measure(3, &|| drop(done(plan())));
    }
}

/// On the strongest GPU, or on llvmpipe where there is none.
#[cfg(feature = "gpu")]
pub(super) fn bench_on_gpu() {
    let Some((gpu, is_real)) = super::gpu("npairs") else { return };
    let synthetic = if is_real {
        Synthetic { size: [60, 70, 48], subjects: 30, ..Synthetic::default() }
    } else {
        Synthetic { size: [16, 14, 10], subjects: 4, ..Synthetic::default() }
    };
    let (data, design) = scans(&synthetic);
    let size = size(&data, 20);
    let prepare = || (data.clone(), design.clone());
    Row { kernel: "npairs", size: &size }.measure_prepared(1, 3, &prepare, &|(data, design)| {
        drop(done(NpairsPlan::new(data, design, 20, 10, 1).expect("a plan")));
    });
    let kernel = format!("npairs on {}", gpu.name());
    Row { kernel: &kernel, size: &size }.measure_prepared(1, 3, &prepare, &|(data, design)| {
        let plan = NpairsPlan::on_device(gpu.clone(), data, design, 20, 10, 1);
        drop(done(plan.expect("a plan")));
    });
}
