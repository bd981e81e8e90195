// SPDX-License-Identifier: GPL-2.0
//! Five functions that work in clearly different ways, for the demo to interrupt.
//!
//! None of them calls another function, so that an interrupted address belongs to exactly one of
//! them. They are not inlined, so that each has its plain name in the symbol table.

use std::hint::black_box;

/// One function of the workload.
pub struct Function {
    /// Name of the function in the program's symbol table.
    pub name: &'static str,
    /// The function.
    pub address: extern "C" fn(&mut Data) -> u64,
}

/// The workload, in the order of a pass.
pub const FUNCTIONS: [Function; 5] = [
    Function {
        name: "prime_sieve",
        address: prime_sieve,
    },
    Function {
        name: "matrix_product",
        address: matrix_product,
    },
    Function {
        name: "edit_distance",
        address: edit_distance,
    },
    Function {
        name: "heap_sort",
        address: heap_sort,
    },
    Function {
        name: "collatz_steps",
        address: collatz_steps,
    },
];

const SIEVE: usize = 3 << 15;
const SIDE: usize = 48;
const TEXT: usize = 500;
const KEYS: usize = 1 << 13;

/// Data that the functions work on.
pub struct Data {
    composite: Vec<bool>,
    a: Vec<f64>,
    b: Vec<f64>,
    product: Vec<f64>,
    bytes: Vec<u8>,
    distance: Vec<u32>,
    keys: Vec<u32>,
    seed: u32,
}

impl Data {
    /// Fills the memory, so that a pass takes no page fault.
    pub fn new() -> Self {
        // CAST: The values are below 17, which f64 represents exactly.
        let matrix = |factor: usize| (0..SIDE * SIDE).map(move |i| (i * factor % 17) as f64);
        Self {
            composite: vec![true; SIEVE],
            a: matrix(3).collect(),
            b: matrix(5).collect(),
            product: vec![1.0; SIDE * SIDE],
            // CAST: A remainder of 251 fits into u8.
            bytes: (0..2 * TEXT).map(|i| (i * i % 251) as u8).collect(),
            distance: vec![1; TEXT + 1],
            keys: vec![1; KEYS],
            seed: 1,
        }
    }
}

/// Sieve of Eratosthenes: strided stores.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn prime_sieve(data: &mut Data) -> u64 {
    for slot in data.composite.iter_mut() {
        *slot = false;
    }
    let mut primes = 0;
    for n in 2..SIEVE {
        if !data.composite[n] {
            primes += 1;
            let mut multiple = n * n;
            while multiple < SIEVE {
                data.composite[multiple] = true;
                multiple += n;
            }
        }
    }
    primes
}

/// Product of two matrices: floating point, so EBBs meet live FPRs and VSRs.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn matrix_product(data: &mut Data) -> u64 {
    for row in 0..SIDE {
        for column in 0..SIDE {
            let mut sum = 0.0;
            for k in 0..SIDE {
                sum += data.a[row * SIDE + k] * data.b[k * SIDE + column];
            }
            data.product[row * SIDE + column] = sum;
        }
    }
    data.product.iter().sum::<f64>().to_bits()
}

/// Edit distance of two texts: fills a table row by row with the minimum of three values.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn edit_distance(data: &mut Data) -> u64 {
    let (left, right) = data.bytes.split_at(TEXT);
    // CAST: Columns and rows are at most TEXT, which fits into u32.
    for (column, cell) in data.distance.iter_mut().enumerate() {
        *cell = column as u32;
    }
    for (row, &a) in left.iter().enumerate() {
        let mut diagonal = row as u32;
        let mut before = diagonal + 1;
        data.distance[0] = before;
        for (cell, &b) in data.distance[1..].iter_mut().zip(right) {
            let changed = diagonal + u32::from(a != b);
            diagonal = *cell;
            before = changed.min(diagonal + 1).min(before + 1);
            *cell = before;
        }
    }
    u64::from(data.distance[TEXT])
}

/// Heapsort of pseudo-random keys: scattered loads and stores.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn heap_sort(data: &mut Data) -> u64 {
    let mut seed = data.seed;
    for key in data.keys.iter_mut() {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *key = seed >> 8;
    }
    let keys = &mut data.keys;
    let mut start = KEYS / 2;
    let mut end = KEYS;
    while end > 1 {
        if start > 0 {
            start -= 1;
        } else {
            end -= 1;
            keys.swap(0, end);
        }
        let mut root = start;
        while 2 * root + 1 < end {
            let mut child = 2 * root + 1;
            if child + 1 < end && keys[child] < keys[child + 1] {
                child += 1;
            }
            if keys[root] >= keys[child] {
                break;
            }
            keys.swap(root, child);
            root = child;
        }
    }
    u64::from(keys[KEYS / 2])
}

/// Steps of the Collatz sequence: arithmetic in registers only.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn collatz_steps(_data: &mut Data) -> u64 {
    let mut steps = 0;
    for start in 1..5000u64 {
        let mut n = start;
        while n != 1 {
            n = if n & 1 == 0 { n / 2 } else { 3 * n + 1 };
            steps += 1;
        }
    }
    steps
}

impl Function {
    /// Runs the function; `black_box` keeps the compiler from using what it knows of the result.
    pub fn run(&self, data: &mut Data) -> u64 {
        black_box(self.address)(data)
    }
}

/// Runs every function once; the sum is the same in every pass.
pub fn pass(data: &mut Data) -> u64 {
    FUNCTIONS
        .iter()
        .fold(0, |sum, function| function.run(data).wrapping_add(sum))
}
