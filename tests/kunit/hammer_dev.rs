// SPDX-License-Identifier: GPL-2.0

//! `/dev/rds_mr_test`: the write hammer for system tests. One hammer per open
//! file; tools/rdsmr has the other side of these ioctls.

use crate::hammer::Hammer;
use crate::hammer::Target;
use crate::raw::arm;
use crate::raw::slow_copy;
use crate::raw::struck;
use kernel::fs::File;
use kernel::ioctl;
use kernel::miscdevice::MiscDevice;
use kernel::miscdevice::MiscDeviceRegistration;
use kernel::new_mutex;
use kernel::prelude::*;
use kernel::sync::Mutex;
use kernel::transmute::AsBytes;
use kernel::transmute::FromBytes;
use kernel::uaccess::UserPtr;
use kernel::uaccess::UserSlice;

/// Start a hammer; returns when its first write has completed.
///
/// `EBUSY`: this file has one. `EINVAL`: nonsense, or a chunk above 64 KiB.
/// `ENOENT`: no such key. `EIO`: the first write failed.
const HAMMER_START: u32 = ioctl::_IOW::<Start>(b'H' as u32, 1);
/// How far it has come. `ENOENT`: none was started.
const HAMMER_STATUS: u32 = ioctl::_IOR::<Status>(b'H' as u32, 2);
/// Stop it and wait for its end; as closing the file does.
const HAMMER_STOP: u32 = ioctl::_IO(b'H' as u32, 3);
/// Delay every copy of rxe by so many microseconds, up to 100000; 0 ends it.
const SLOW_COPY: u32 = ioctl::_IOW::<u32>(b'H' as u32, 4);

/// Let a verb fail; see faults.h. `EINVAL`: no such fault.
const FAULT: u32 = ioctl::_IOW::<FaultArgs>(b'H' as u32, 5);
/// How often the fault `fault` has struck since it was armed, into `times`.
const FAULT_STRUCK: u32 = ioctl::_IOWR::<FaultArgs>(b'H' as u32, 6);

#[repr(C)]
struct FaultArgs {
    fault: u32,
    times: u32,
    arg: u32,
    pad: u32,
}

#[repr(C)]
struct Start {
    cookie: u64,
    bytes: u64,
    chunk: u32,
    flags: u32,
}

#[repr(C)]
struct Status {
    writes: u64,
    running: u32,
    status: u32,
}

// SAFETY: Integers only, and no padding: any bytes are a value.
unsafe impl FromBytes for Start {}
// SAFETY: As above.
unsafe impl FromBytes for FaultArgs {}
// SAFETY: Integers only, and no padding: every byte is initialised.
unsafe impl AsBytes for Status {}
// SAFETY: As above.
unsafe impl AsBytes for FaultArgs {}

/// Ends the delay of [`SLOW_COPY`] when dropped: with the module.
pub(crate) struct NoSlowCopy;

impl Drop for NoSlowCopy {
    fn drop(&mut self) {
        // Ending it cannot fail.
        let _ = slow_copy(0);
    }
}

/// An open file.
#[pin_data]
pub(crate) struct HammerFile {
    #[pin]
    hammer: Mutex<Option<Hammer>>,
}

impl HammerFile {
    fn start(&self, arg: UserPtr) -> Result {
        let start: Start = UserSlice::new(arg, size_of::<Start>()).reader().read()?;
        if start.flags != 0 {
            return Err(EINVAL);
        }
        let target = Target::new(start.cookie, start.bytes, start.chunk)?;
        let progress = {
            let mut hammer = self.hammer.lock();
            if hammer.is_some() {
                return Err(EBUSY);
            }
            hammer.insert(Hammer::start(target)?).progress().clone()
        };
        progress.begun()
    }

    fn status(&self, arg: UserPtr) -> Result {
        let status = {
            let hammer = self.hammer.lock();
            let progress = hammer.as_ref().ok_or(ENOENT)?.progress();
            Status {
                running: progress.is_running().into(),
                writes: progress.writes(),
                status: progress.status(),
            }
        };
        UserSlice::new(arg, size_of::<Status>())
            .writer()
            .write(&status)
    }
}

#[vtable]
impl MiscDevice for HammerFile {
    type Ptr = Pin<KBox<Self>>;

    fn open(_file: &File, _misc: &MiscDeviceRegistration<Self>) -> Result<Self::Ptr> {
        KBox::pin_init(
            pin_init!(Self { hammer <- new_mutex!(None, "HammerFile::hammer") }),
            GFP_KERNEL,
        )
    }

    fn ioctl(this: Pin<&Self>, _file: &File, cmd: u32, arg: usize) -> Result<isize> {
        let arg = UserPtr::from_addr(arg);
        match cmd {
            HAMMER_START => this.start(arg)?,
            HAMMER_STATUS => this.status(arg)?,
            HAMMER_STOP => {
                // Not under the lock: it waits for the last write.
                let hammer = this.hammer.lock().take();
                drop(hammer);
            }
            SLOW_COPY => slow_copy(UserSlice::new(arg, 4).reader().read()?)?,
            FAULT => {
                let args: FaultArgs = UserSlice::new(arg, size_of::<FaultArgs>())
                    .reader()
                    .read()?;
                arm(args.fault, args.times, args.arg)?;
            }
            FAULT_STRUCK => {
                let (mut reader, mut writer) =
                    UserSlice::new(arg, size_of::<FaultArgs>()).reader_writer();
                let mut args: FaultArgs = reader.read()?;
                args.times = struck(args.fault)?;
                writer.write(&args)?;
            }
            _ => return Err(ENOTTY),
        }
        Ok(0)
    }
}
