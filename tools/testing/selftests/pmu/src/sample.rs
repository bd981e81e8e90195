// SPDX-License-Identifier: GPL-2.0
//! Parser of sample records, according to the attributes of their event (perf_event_open(2),
//! "PERF_RECORD_SAMPLE").

use std::io;

use perf_event::sys;

use crate::regs::Registers;
use crate::ring::Record;
use crate::ring::Ring;
use perf_event::Attr;
use perf_event::Event;

/// Returns the least number of samples that `work` gives. Each sample is late by the path into the
/// interrupt, some thousand instructions, which do not count for the next period.
pub fn fewest_samples(work: u64, period: u64) -> usize {
    (work / (period + 4000)) as usize
}

/// A sample. Fields that its event does not sample are 0 or empty.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// The record's `misc`.
    pub misc: u16,
    /// PERF_SAMPLE_IDENTIFIER.
    pub identifier: u64,
    /// PERF_SAMPLE_IP.
    pub ip: u64,
    /// PERF_SAMPLE_TID: the process.
    pub pid: u32,
    /// PERF_SAMPLE_TID: the thread.
    pub tid: u32,
    /// PERF_SAMPLE_TIME (ns).
    pub time: u64,
    /// PERF_SAMPLE_ADDR.
    pub addr: u64,
    /// PERF_SAMPLE_ID.
    pub id: u64,
    /// PERF_SAMPLE_STREAM_ID.
    pub stream_id: u64,
    /// PERF_SAMPLE_CPU.
    pub cpu: u32,
    /// PERF_SAMPLE_PERIOD.
    pub period: u64,
    /// PERF_SAMPLE_READ.
    pub read: Read,
    /// PERF_SAMPLE_CALLCHAIN, with the PERF_CONTEXT_ marks in it.
    pub callchain: Vec<u64>,
    /// PERF_SAMPLE_RAW, from its size to the end of its padding.
    pub raw: Vec<u64>,
    /// PERF_SAMPLE_BRANCH_STACK, most recent first.
    pub branches: Vec<Branch>,
    /// PERF_SAMPLE_BRANCH_HW_INDEX.
    pub hw_index: u64,
    /// PERF_SAMPLE_REGS_USER.
    pub regs_user: Registers,
    /// PERF_SAMPLE_STACK_USER: the valid bytes only.
    pub stack_user: Vec<u8>,
    /// PERF_SAMPLE_WEIGHT or PERF_SAMPLE_WEIGHT_STRUCT.
    pub weight: u64,
    /// PERF_SAMPLE_DATA_SRC.
    pub data_src: u64,
    /// PERF_SAMPLE_TRANSACTION.
    pub transaction: u64,
    /// PERF_SAMPLE_REGS_INTR.
    pub regs_intr: Registers,
    /// PERF_SAMPLE_PHYS_ADDR.
    pub phys_addr: u64,
    /// PERF_SAMPLE_DATA_PAGE_SIZE (bytes).
    pub data_page_size: u64,
    /// PERF_SAMPLE_CODE_PAGE_SIZE (bytes).
    pub code_page_size: u64,
}

/// The counts in a sample, of a group or of the event alone (times in ns).
#[derive(Debug, Clone, Default)]
pub struct Read {
    /// PERF_FORMAT_TOTAL_TIME_ENABLED.
    pub enabled: u64,
    /// PERF_FORMAT_TOTAL_TIME_RUNNING.
    pub running: u64,
    /// The leader's count, then the counts of the members in the order of opening.
    pub values: Vec<Value>,
}

/// The count of one event.
#[derive(Debug, Clone, Default)]
pub struct Value {
    /// Events counted.
    pub value: u64,
    /// PERF_FORMAT_ID.
    pub id: u64,
    /// PERF_FORMAT_LOST.
    pub lost: u64,
}

/// An entry of a branch stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Branch {
    /// Address of the branch.
    pub from: u64,
    /// Address of the branch's target.
    pub to: u64,
    /// The bit fields of `struct perf_branch_entry`.
    pub flags: u64,
}

impl Sample {
    /// Parses a record. Returns an error if the record is too short or too long for its fields.
    pub fn parse(attr: &Attr, record: &Record) -> io::Result<Sample> {
        let attr = attr.as_raw();
        let mut words = Words(&record.words);
        let has = |field: u32| attr.sample_type & u64::from(field) != 0;
        let mut sample = Sample {
            misc: record.misc,
            ..Sample::default()
        };
        for (field, target) in [
            (sys::PERF_SAMPLE_IDENTIFIER, &mut sample.identifier),
            (sys::PERF_SAMPLE_IP, &mut sample.ip),
        ] {
            words.take_if(has(field), target)?;
        }
        if has(sys::PERF_SAMPLE_TID) {
            let both = words.next()?;
            (sample.pid, sample.tid) = (both as u32, (both >> 32) as u32);
        }
        let mut cpu = 0;
        for (field, target) in [
            (sys::PERF_SAMPLE_TIME, &mut sample.time),
            (sys::PERF_SAMPLE_ADDR, &mut sample.addr),
            (sys::PERF_SAMPLE_ID, &mut sample.id),
            (sys::PERF_SAMPLE_STREAM_ID, &mut sample.stream_id),
            (sys::PERF_SAMPLE_CPU, &mut cpu),
            (sys::PERF_SAMPLE_PERIOD, &mut sample.period),
        ] {
            words.take_if(has(field), target)?;
        }
        sample.cpu = cpu as u32;
        if has(sys::PERF_SAMPLE_READ) {
            sample.read = words.read(attr.read_format)?;
        }
        if has(sys::PERF_SAMPLE_CALLCHAIN) {
            let length = words.next()?;
            sample.callchain = words.many(length)?.to_vec();
        }
        if has(sys::PERF_SAMPLE_RAW) {
            let first = words.next()?;
            // A size of 32 bits, and that many bytes, padded to a whole word.
            let length = (u64::from(first as u32) + 4).div_ceil(8).max(1);
            sample.raw = vec![first];
            sample.raw.extend(words.many(length - 1)?);
        }
        if has(sys::PERF_SAMPLE_BRANCH_STACK) {
            let length = words.next()?;
            let with_index = attr.branch_sample_type & u64::from(sys::PERF_SAMPLE_BRANCH_HW_INDEX);
            words.take_if(with_index != 0, &mut sample.hw_index)?;
            let entries = words.many(length.saturating_mul(3))?.chunks_exact(3);
            sample.branches = entries
                .map(|entry| Branch {
                    from: entry[0],
                    to: entry[1],
                    flags: entry[2],
                })
                .collect();
        }
        if has(sys::PERF_SAMPLE_REGS_USER) {
            sample.regs_user = words.registers(attr.sample_regs_user)?;
        }
        if has(sys::PERF_SAMPLE_STACK_USER) {
            sample.stack_user = words.stack()?;
        }
        let has_weight = has(sys::PERF_SAMPLE_WEIGHT) || has(sys::PERF_SAMPLE_WEIGHT_STRUCT);
        words.take_if(has_weight, &mut sample.weight)?;
        for (field, target) in [
            (sys::PERF_SAMPLE_DATA_SRC, &mut sample.data_src),
            (sys::PERF_SAMPLE_TRANSACTION, &mut sample.transaction),
        ] {
            words.take_if(has(field), target)?;
        }
        if has(sys::PERF_SAMPLE_REGS_INTR) {
            sample.regs_intr = words.registers(attr.sample_regs_intr)?;
        }
        for (field, target) in [
            (sys::PERF_SAMPLE_PHYS_ADDR, &mut sample.phys_addr),
            (sys::PERF_SAMPLE_DATA_PAGE_SIZE, &mut sample.data_page_size),
            (sys::PERF_SAMPLE_CODE_PAGE_SIZE, &mut sample.code_page_size),
        ] {
            words.take_if(has(field), target)?;
        }
        if !words.0.is_empty() {
            let left = words.0.len();
            return Err(io::Error::other(format!("{left} words remain of a sample")));
        }
        Ok(sample)
    }

    /// Parses the samples among `records`, in order.
    pub fn all(attr: &Attr, records: &[Record]) -> io::Result<Vec<Sample>> {
        let samples = records.iter().filter(|record| record.is_sample());
        samples.map(|record| Sample::parse(attr, record)).collect()
    }

    /// Returns PERF_RECORD_MISC_USER, PERF_RECORD_MISC_KERNEL and so on.
    pub fn mode(&self) -> u32 {
        u32::from(self.misc) & sys::PERF_RECORD_MISC_CPUMODE_MASK
    }
}

/// An event with its ring buffer.
pub struct Recorder {
    /// The attributes of the event.
    pub attr: Attr,
    /// The event.
    pub event: Event,
    /// The event's ring buffer.
    pub ring: Ring,
}

impl Recorder {
    /// Opens the event with `pages` of ring buffer.
    pub fn open(attr: Attr, pages: usize) -> io::Result<Recorder> {
        let event = attr.open()?;
        let ring = Ring::map(&event, pages)?;
        Ok(Recorder { attr, event, ring })
    }

    /// Returns the records of `body`. The count starts at zero.
    pub fn records(&mut self, body: impl FnOnce()) -> io::Result<Vec<Record>> {
        self.event.enable_during(body)?;
        Ok(self.ring.take())
    }

    /// Returns the samples of `body`. The count starts at zero.
    pub fn samples(&mut self, body: impl FnOnce()) -> io::Result<Vec<Sample>> {
        let records = self.records(body)?;
        Sample::all(&self.attr, &records)
    }

    /// Returns the samples since the last call.
    pub fn take(&mut self) -> io::Result<Vec<Sample>> {
        Sample::all(&self.attr, &self.ring.take())
    }
}

/// The words of a record that are not parsed yet.
struct Words<'a>(&'a [u64]);

impl<'a> Words<'a> {
    fn next(&mut self) -> io::Result<u64> {
        self.many(1).map(|words| words[0])
    }

    fn many(&mut self, length: u64) -> io::Result<&'a [u64]> {
        let too_short = || io::Error::other("a sample is shorter than its fields");
        let length = usize::try_from(length).map_err(|_| too_short())?;
        let (words, left) = self.0.split_at_checked(length).ok_or_else(too_short)?;
        self.0 = left;
        Ok(words)
    }

    fn take_if(&mut self, is_there: bool, target: &mut u64) -> io::Result<()> {
        if is_there {
            *target = self.next()?;
        }
        Ok(())
    }

    fn read(&mut self, format: u64) -> io::Result<Read> {
        let has = |field: u32| format & u64::from(field) != 0;
        let is_group = has(sys::PERF_FORMAT_GROUP);
        let mut read = Read::default();
        let mut first = self.next()?;
        self.take_if(has(sys::PERF_FORMAT_TOTAL_TIME_ENABLED), &mut read.enabled)?;
        self.take_if(has(sys::PERF_FORMAT_TOTAL_TIME_RUNNING), &mut read.running)?;
        let events = if is_group { first } else { 1 };
        for _ in 0..events {
            self.take_if(is_group, &mut first)?;
            let mut value = Value {
                value: first,
                ..Value::default()
            };
            self.take_if(has(sys::PERF_FORMAT_ID), &mut value.id)?;
            self.take_if(has(sys::PERF_FORMAT_LOST), &mut value.lost)?;
            read.values.push(value);
        }
        Ok(read)
    }

    fn registers(&mut self, mask: u64) -> io::Result<Registers> {
        let abi = self.next()?;
        if abi == 0 {
            return Ok(Registers::default());
        }
        let values = self.many(mask.count_ones().into())?.to_vec();
        Ok(Registers { abi, mask, values })
    }

    fn stack(&mut self) -> io::Result<Vec<u8>> {
        let size = self.next()?;
        if size == 0 {
            return Ok(Vec::new());
        }
        let words = self.many(size.div_ceil(8))?;
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(self.next()? as usize);
        Ok(bytes)
    }
}
