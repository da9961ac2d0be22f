use std::sync::LazyLock;

use super::*;

/// The software device that tests use: `tests/run` installs it.
pub(crate) fn software() -> Arc<Gpu> {
    static SHARED: LazyLock<Arc<Gpu>> = LazyLock::new(open);
    SHARED.clone()
}

/// Another one, for who breaks it.
pub(crate) fn open() -> Arc<Gpu> {
    let gpu = Gpu::open(Some("llvmpipe"));
    gpu.expect("the package mesa-vulkan-drivers is installed, which tests/run does")
}

/// One that others leave so many bytes of for data.
pub(crate) fn with_room(bytes: usize) -> Gpu {
    let adapter = chosen(Some("llvmpipe"), None).expect("as above");
    Gpu::ready(&adapter, about(&adapter), bytes).expect("it opens")
}

fn buffer(gpu: &Gpu, bytes: usize) -> Result<Buffer, GpuError> {
    let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
    gpu.checked("a test", || Ok(gpu.buffer("test", bytes, usage)))
}

#[test]
fn a_look_says_what_is_opened() {
    assert_eq!(Gpu::look(Some("llvmpipe")).as_ref(), Ok(software().info()));
    assert!(matches!(Gpu::look(Some("Voodoo")), Err(GpuError::NoneNamed { .. })));
}

#[test]
fn what_is_kept_for_others_is_not_taken() {
    let error =
        Gpu::open_beside(Some("llvmpipe"), None, 1 << 24).expect_err("nobody has that much");
    let told = error.to_string();
    assert!(told.contains("llvmpipe") && told.contains("are kept for others"), "{told}");
}

#[test]
fn what_is_on_no_bus_is_nowhere() {
    let place = "0000:01:00.0".parse().ok();
    let error = Gpu::open_beside(Some("llvmpipe"), place, 0).expect_err("it is only software");
    assert!(matches!(error, GpuError::NonePlaced { .. }), "{error}");
}

#[test]
fn what_is_written_comes_back() {
    let gpu = software();
    assert!(gpu.name().contains("llvmpipe"));
    let bytes: Vec<u8> = (0..=255).collect();
    let buffer = buffer(&gpu, 256).expect("a buffer");
    let read = || {
        gpu.queue().write_buffer(&buffer, 0, &bytes);
        gpu.read(&buffer, 128, gpu.queue().submit([]))
    };
    assert_eq!(gpu.checked("a test", read), Ok(bytes[..128].to_vec()));
}

#[test]
fn what_is_sent_through_staging_comes_back() {
    let gpu = software();
    let parts = || -> Result<(Staging, Buffer), GpuError> {
        let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        Ok((Staging::new(&gpu, 64), gpu.buffer("test", 32, usage)))
    };
    let (staging, buffer) = gpu.checked("a test", parts).expect("two buffers");
    for round in 0..3_u8 {
        let send = || {
            let parcels: [staging::Parcel<'_>; 2] =
                [(&buffer, 0, &[round; 8]), (&buffer, 12, &[9 - round; 20])];
            staging.send(&gpu, &parcels)?;
            gpu.read(&buffer, 32, gpu.queue().submit([]))
        };
        let expected = [vec![round; 8], vec![0; 4], vec![9 - round; 20]].concat();
        assert_eq!(gpu.checked("a test", send), Ok(expected));
    }
}

#[test]
fn what_a_device_refuses_is_told_with_its_name() {
    let gpu = software();
    let too_large = usize::try_from(gpu.device().limits().max_buffer_size).expect("64 bits") + 4;
    let error = buffer(&gpu, too_large).expect_err("refused");
    let told = error.to_string();
    assert!(matches!(error, GpuError::Failed { .. }), "{error:?}");
    assert!(told.contains("llvmpipe") && !told.contains('\n'), "{told}");
    // The device itself goes on.
    assert!(buffer(&gpu, 256).is_ok());
}

#[test]
fn a_device_without_memory_says_for_what() {
    let error = wgpu::Error::OutOfMemory { source: "the driver".into() };
    let told = GpuError::of("GPU", "a brick of 9 x 9 x 9 voxels", &error).to_string();
    assert!(told.contains("GPU has no memory left for a brick of 9 x 9 x 9 voxels"), "{told}");
    // The library gives a device up where it has no memory for its own.
    let error = GpuError::of_lost("GPU", "products", "Out of memory");
    assert!(matches!(error, GpuError::OutOfMemory { .. }), "{error:?}");
    let error = GpuError::of_lost("GPU", "products", "Device is lost");
    assert!(matches!(error, GpuError::Lost { .. }), "{error:?}");
}

#[test]
fn a_device_that_is_lost_is_an_error_at_every_use() {
    let gpu = open();
    let kept = buffer(&gpu, 256).expect("a buffer");
    gpu.device().destroy();
    let is_lost = |error: GpuError| matches!(error, GpuError::Lost { .. });
    let read = gpu.checked("a test", || gpu.read(&kept, 256, gpu.queue().submit([])));
    assert!(read.is_err_and(is_lost));
    assert!(buffer(&gpu, 256).is_err_and(is_lost));
}
