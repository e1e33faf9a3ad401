//! What the machine is: figures mean little without it.

use gradchain::SimdLevel;

/// The processor as the system calls it, what steps use of it, and on how many threads.
pub fn describe(simd: SimdLevel, threads: &[usize]) -> String {
    // Only Linux has the file, and not every processor says all of this in it.
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let said = |wanted: &str| {
        let lines = cpu.lines().filter_map(|line| line.split_once(':'));
        let mut found = lines.filter(|(key, _)| key.trim() == wanted);
        found.next().map_or("unknown", |(_, value)| value.trim())
    };
    let [name, family, model] = ["model name", "cpu family", "model"].map(said);
    let threads: Vec<_> = threads.iter().map(usize::to_string).collect();
    let simd = format!("{simd:?}").to_lowercase();
    format!("machine cpu=\"{name}\" family={family} model={model} isa={simd} threads={}", threads.join(","))
}
