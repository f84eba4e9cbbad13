//! Lets the linker leave Python's symbols to the interpreter on macOS; elsewhere it does so by itself.

fn main() {
    pyo3_build_config::add_extension_module_link_args();
}
