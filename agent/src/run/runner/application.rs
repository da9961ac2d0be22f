//! Running a kernel with a specification, in the runner itself.
//!
//! Where a GPU may compute it and does not come to an end with it, the runner says so and no more: it
//! is ended, which gives back what it has of the device, and another one begins again.
//!
//! # Invariants
//! - It reads the files that came with it and no others.
//! - Nothing that it says names a path of this host.

use std::any::Any;
use std::io::{self, Read};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;

use gleaner_kernels::application::{
    Application, ApplicationError, Control, Finished, Product as Made, Task, unpack,
};
use gleaner_kernels::{Preempt, allowed_bytes};
use gleaner_protocol::limits::{BLOB_BYTES_MAX, OUTPUT_FILES_MAX, SPEC_BYTES_MAX};
use gleaner_protocol::{Computer, DataSize, Digest, Measured, boottime};

use super::device::{device_for, gpu_fault, let_be};
use super::folder::TaskFolder;
use super::order_files::OrderFiles;
use super::outputs::{Collector, copy_hashed};
use super::{ApplicationOrder, Fault, GpuOrder, Reply, StagedInput, panic_text, thread_cpu};
use crate::harvest::Product;

/// What is said of one while it runs.
pub(super) enum News {
    /// How far it is, in thousandths.
    Progress(u16),
    /// It is about to open a GPU.
    OpensGpu,
    /// The GPU that computes it, where one may; none where the processor does.
    ComputedBy(Option<String>),
}

/// Why there is no output.
enum Trouble {
    /// Its own doing.
    Failed(String),
    /// This host's.
    CannotRun(String),
    /// Its GPU's.
    Gpu(String, Fault),
}

/// Runs one to its end. It stops with its process: a render does not wait for it to look up.
pub(super) fn run(
    folder: &mut TaskFolder,
    collector: &Collector,
    order: &ApplicationOrder,
    files: OrderFiles,
    tell: &mut dyn FnMut(News),
) -> Reply {
    let (before, began) = (thread_cpu(), boottime());
    let mut may_be_the_gpu = order.gpu.is_some();
    let mut told = |news: News| {
        may_be_the_gpu &= !matches!(news, News::ComputedBy(None));
        tell(news);
    };
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
        perform(folder, collector, order, files, &mut told)
    }));
    let cpu_us = (thread_cpu() - before).as_micros();
    folder.clear();
    if !matches!(outcome, Ok(Ok(_))) {
        collector.discard(order.token);
    }
    match outcome {
        Ok(Ok((files, Finished { size, by, .. }))) => {
            let run_us = match by {
                Computer::Gpu => boottime().since(began).as_micros(),
                Computer::Core => cpu_us,
            };
            let measured = DataSize::new(size).ok().map(|size| Measured { size, by, run_us });
            Reply::Done { files, cpu_us, measured }
        }
        Ok(Err(Trouble::Failed(reason))) => Reply::Failed { reason, cpu_us },
        Ok(Err(Trouble::CannotRun(reason))) => Reply::CannotRun(reason),
        Ok(Err(Trouble::Gpu(reason, of))) => Reply::GpuFailed { reason, of },
        // It may be the driver's doing: the processor finds out.
        Err(panic) if may_be_the_gpu => {
            Reply::GpuFailed { reason: panicked(order, &*panic), of: Fault::Unclear }
        }
        Err(panic) => Reply::Failed { reason: panicked(order, &*panic), cpu_us },
    }
}

fn panicked(order: &ApplicationOrder, panic: &(dyn Any + Send)) -> String {
    format!("kernel {} panicked: {}", order.kernel, panic_text(panic))
}

/// The files that came out, and what else there is to say.
fn perform(
    folder: &mut TaskFolder,
    collector: &Collector,
    order: &ApplicationOrder,
    mut files: OrderFiles,
    tell: &mut dyn FnMut(News),
) -> Result<(Vec<Product>, Finished), Trouble> {
    let Some(application) = Application::named(order.kernel.as_str()) else {
        let reason = format!("kernel {} takes no specification", order.kernel);
        return Err(Trouble::CannotRun(reason));
    };
    let folder = folder
        .enter()
        .map_err(|error| Trouble::CannotRun(format!("cannot make a task's folder: {error}")))?;
    let spec = read_spec(&order.spec, &mut files)?;
    for input in &order.inputs {
        stage(input, &mut files, folder)?;
    }
    let mut products = Vec::new();
    let mut keep = |made: Made| {
        products.push(kept(collector, order, products.len(), made)?);
        Ok(())
    };
    let task = unpack(application, &spec, folder, order.item.as_deref());
    let task = task.map_err(|error| Trouble::Failed(told(application, error)))?;
    let done =
        compute(&task, order.gpu.as_ref(), tell, &mut keep).map_err(|error| {
            match gpu_fault(&error) {
                Some(fault) => Trouble::Gpu(error.to_string(), fault),
                None if matches!(error, ApplicationError::Memory(_)) => {
                    Trouble::Failed(format!("{}; {}", told(application, error), order.too_little))
                }
                None => Trouble::Failed(told(application, error)),
            }
        })?;
    Ok((products, done))
}

/// Keeps what a kernel has made after `before` other files.
fn kept(
    collector: &Collector,
    order: &ApplicationOrder,
    before: usize,
    Made { name, bytes }: Made,
) -> Result<Product, String> {
    if bytes.len() as u64 > BLOB_BYTES_MAX {
        let length = bytes.len();
        return Err(format!("{name} would have {length} bytes, more than {BLOB_BYTES_MAX}"));
    }
    if before >= OUTPUT_FILES_MAX {
        return Err(format!(
            "{name} is one file more than the {OUTPUT_FILES_MAX} of a workunit: give each part as \
             an item of its own, as `gleaner submit {}` does",
            order.kernel
        ));
    }
    collector.keep_bytes(order.token, &name, bytes)
}

fn compute(
    task: &Task,
    gpu: Option<&GpuOrder>,
    tell: &mut dyn FnMut(News),
    keep: &mut dyn FnMut(Made) -> Result<(), String>,
) -> Result<Finished, ApplicationError> {
    if gpu.is_some() {
        tell(News::OpensGpu);
    }
    let (device, name) = device_for(task, gpu)?;
    if gpu.is_some() {
        tell(News::ComputedBy(name));
    }
    let preempt = Preempt::new();
    let mut shown = |_: &str, permille: u16| tell(News::Progress(permille));
    let mut control = Control {
        device: device.clone(),
        preempt: &preempt,
        clock: &boottime,
        // What others take of the machine is not this one's failure.
        free_bytes: &allowed_bytes,
        progress: &mut shown,
        keep,
    };
    let done = task.run(&mut control);
    if done.as_ref().is_err_and(|error| gpu_fault(error).is_some()) {
        let_be(device);
    }
    done
}

/// The submitter knows the file's name, and not where this host keeps it.
fn told(application: Application, error: ApplicationError) -> String {
    let error = match error {
        ApplicationError::Data { path, problem } => {
            let path = path.file_name().map(Into::into).unwrap_or(path);
            ApplicationError::Data { path, problem }
        }
        error => error,
    };
    format!("{}: {error}", application.name())
}

fn read_spec(spec: &StagedInput, files: &mut OrderFiles) -> Result<String, Trouble> {
    let mut bytes = Vec::new();
    files
        .next()
        .and_then(|file| file.take(SPEC_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| damaged(spec, &error.to_string()))?;
    if bytes.len() as u64 > SPEC_BYTES_MAX {
        let reason = format!("the specification is longer than {SPEC_BYTES_MAX} bytes");
        return Err(Trouble::Failed(reason));
    }
    check_digest(spec, Digest::of(&bytes))?;
    String::from_utf8(bytes)
        .map_err(|_| Trouble::Failed("the specification is no text in UTF-8".into()))
}

fn stage(input: &StagedInput, files: &mut OrderFiles, folder: &Path) -> Result<(), Trouble> {
    let found = files.next().and_then(|file| copy_hashed(file, &folder.join(&input.name)));
    check_digest(input, found.map_err(|error: io::Error| damaged(input, &error.to_string()))?)
}

fn check_digest(input: &StagedInput, found: Digest) -> Result<(), Trouble> {
    let expected = input.digest;
    if found == expected {
        return Ok(());
    }
    Err(damaged(input, &format!("the cached file is damaged: it holds {found}, not {expected}")))
}

fn damaged(input: &StagedInput, problem: &str) -> Trouble {
    Trouble::CannotRun(format!("input {:?}: {problem}", input.name))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use gleaner_kernels::application::{Parcel, sample};
    use gleaner_protocol::{Content, KernelName};

    use super::*;
    use crate::run::runner::Order;

    /// A runner's folders, with a kernel's sample in one of them.
    struct Bench {
        base: tempfile::TempDir,
        application: Application,
    }

    impl Bench {
        fn new(application: Application) -> Self {
            let base = tempfile::tempdir().expect("a folder");
            for folder in ["from", "cache", "spool"] {
                fs::create_dir(base.path().join(folder)).expect("made");
            }
            for product in sample(application, 1).expect("a sample") {
                let path = base.path().join("from").join(product.name);
                fs::write(path, product.bytes).expect("written");
            }
            Self { base, application }
        }

        fn cached(&self, name: &str, bytes: &[u8]) -> StagedInput {
            let source = self.base.path().join("cache").join(name);
            fs::write(&source, bytes).expect("written");
            StagedInput { name: name.into(), source, digest: Digest::of(bytes) }
        }

        fn order(&self, spec: &str, item: Option<&str>) -> ApplicationOrder {
            let from = self.base.path().join("from");
            let parcel = Parcel::pack(self.application, spec, &from).expect("a parcel");
            let files = parcel.files.iter();
            let cached =
                |(name, path): &(String, _)| self.cached(name, &fs::read(path).expect("a file"));
            ApplicationOrder {
                token: 7,
                kernel: KernelName::new(self.application.name()).expect("a plain name"),
                spec: self.cached("specification", parcel.spec.as_bytes()),
                inputs: files.map(cached).collect(),
                item: item.map(str::to_owned),
                memory_mib: 64,
                too_little: "give it more".to_owned(),
                gpu: None,
            }
        }

        fn run(&self, order: &ApplicationOrder) -> Reply {
            let mut folder = TaskFolder::new(self.base.path().join("slot"));
            let collector = Collector::new(self.base.path().join("spool"));
            let files = OrderFiles::open(&Order::Application(order.clone())).expect("there");
            let reply = run(&mut folder, &collector, order, files, &mut |_| ());
            let left = fs::read_dir(folder.enter().expect("made")).expect("a folder").count();
            assert_eq!(left, 0, "nothing stays for the next one");
            reply
        }
    }

    #[test]
    fn a_part_gives_what_the_whole_has_of_it() {
        let bench = Bench::new(Application::Npairs);
        let spec = Application::Npairs.example().replace("splits = 50", "splits = 4");
        let order = bench.order(&spec, Some("2"));
        let Reply::Done { files, .. } = bench.run(&order) else { panic!("it fails") };
        let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["npairs.csv", "map-2.nii"]);
        let Content::Inline(figures) = &files[0].content else { panic!("it is short") };
        let figures = String::from_utf8_lossy(figures);
        assert_eq!(figures.lines().count(), 2);
        assert!(figures.lines().nth(1).is_some_and(|line| line.starts_with("2,")), "{figures}");
    }

    #[test]
    fn a_frame_is_one_file_and_more_than_a_workunit_may_have_are_refused() {
        let bench = Bench::new(Application::Volume);
        let example = Application::Volume.example().replace("[320, 240]", "[3, 2]");
        let frames = OUTPUT_FILES_MAX + 1;
        let spec = format!("{example}\n[animation]\nframes = {frames}\npath = [{{ at = 0 }}]\n");
        let Reply::Done { files, .. } = bench.run(&bench.order(&spec, Some("0007"))) else {
            panic!("it fails")
        };
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].name, "volume-0007.png");
        let Reply::Failed { reason, .. } = bench.run(&bench.order(&spec, None)) else {
            panic!("it has too many files")
        };
        let words = "volume-0064.png is one file more than the 64 of a workunit: give each part as";
        assert!(reason.contains(words), "{reason}");
    }

    #[test]
    fn what_was_made_before_a_failure_is_not_kept() {
        let bench = Bench::new(Application::Volume);
        // Each is larger than what goes with the reply.
        let example = Application::Volume.example().replace("[320, 240]", "[64, 64]");
        let example = example.replace("volume.png", "volume.exr");
        let spec = |frames: usize| {
            format!("{example}\n[animation]\nframes = {frames}\npath = [{{ at = 0 }}]\n")
        };
        let spooled = || fs::read_dir(bench.base.path().join("spool")).expect("a folder").count();
        let Reply::Done { .. } = bench.run(&bench.order(&spec(2), None)) else {
            panic!("it fails")
        };
        assert_eq!(spooled(), 2);
        let more = bench.run(&bench.order(&spec(OUTPUT_FILES_MAX + 1), None));
        assert!(matches!(more, Reply::Failed { .. }), "{more:?}");
        assert_eq!(spooled(), 0);
    }

    #[test]
    fn what_is_wrong_is_told_without_paths_of_this_host() {
        let bench = Bench::new(Application::Pca);
        let here = bench.base.path().display().to_string();
        let failed = |order: &ApplicationOrder| match bench.run(order) {
            Reply::Failed { reason, .. } => reason,
            other => panic!("{other:?}"),
        };
        let example = Application::Pca.example();
        let mut order = bench.order(example, None);
        order.inputs.clear();
        let missing = failed(&order);
        assert!(missing.contains("pca: table.csv: ") && !missing.contains(&here), "{missing}");
        let outside = example.replace("table.csv", "/etc/passwd");
        let order = ApplicationOrder { spec: bench.cached("s", outside.as_bytes()), ..order };
        assert!(failed(&order).contains("no plain file name"));
        let order = ApplicationOrder { item: Some("9".into()), ..bench.order(example, None) };
        assert!(failed(&order).contains("no part \"9\""));
        let many = example.replace("components = 3", "components = 9");
        assert!(failed(&bench.order(&many, None)).contains("9 components"));
    }

    #[test]
    fn no_kernel_names_where_this_host_keeps_what_it_cannot_read() {
        for application in Application::ALL {
            let bench = Bench::new(application);
            let here = bench.base.path().display().to_string();
            let (key, file, other) = match application {
                Application::Volume | Application::Isosurface => {
                    ("volume", "ripples.nrrd", "ripples.vtk")
                }
                Application::Pca => ("data", "table.csv", "table.txt"),
                Application::Npairs => ("scans", "scans.nii", "scans.nrrd"),
            };
            let example = application.example();
            let with = |file: &str| {
                let named =
                    example.lines().map(|line| match line.starts_with(&format!("{key} =")) {
                        true => format!("{key} = {file:?}\n"),
                        false => format!("{line}\n"),
                    });
                bench.cached("s", named.collect::<String>().as_bytes())
            };
            let order = bench.order(example, None);
            let failed = |file: &str, inputs: &[StagedInput]| {
                let order =
                    ApplicationOrder { spec: with(file), inputs: inputs.to_vec(), ..order.clone() };
                match bench.run(&order) {
                    Reply::Failed { reason, .. } if !reason.contains(&here) => reason,
                    other => panic!("{other:?}"),
                }
            };
            let design = |input: &&StagedInput| input.name == "design.csv";
            let inputs: Vec<_> = order.inputs.iter().filter(design).cloned().collect();
            let start = format!("{}: {file}: ", application.name());
            let gone = failed(file, &inputs);
            assert!(gone.starts_with(&start) && gone.contains("No such file"), "{gone}");
            let unknown = failed(other, &inputs);
            assert!(unknown.contains("by its name: use "), "{unknown}");
            if key == "volume" {
                let header =
                    bench.cached("a.toml", b"file = \"a.raw\"\nsize = [2, 2, 2]\ntype = \"u8\"\n");
                let gone = failed("a.toml", &[header]);
                assert!(gone.contains(": a.toml: open a.raw, which its header names: No such"));
            }
        }
    }

    #[test]
    fn a_damaged_input_and_a_kernel_that_is_none_are_this_hosts_trouble() {
        let bench = Bench::new(Application::Pca);
        let order = bench.order(Application::Pca.example(), None);
        fs::write(&order.inputs[0].source, "1,2\n3,4\n").expect("written");
        let Reply::CannotRun(reason) = bench.run(&order) else { panic!("it runs") };
        assert!(reason.contains("table.csv") && reason.contains("damaged"), "{reason}");
        let kernel = KernelName::new("gametree").expect("a plain name");
        let reply = bench.run(&ApplicationOrder { kernel, ..order });
        assert_eq!(reply, Reply::CannotRun("kernel gametree takes no specification".into()));
    }
}
