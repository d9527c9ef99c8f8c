//! The `weft` command; everything is in the library.

fn main() -> std::process::ExitCode {
    weft::cli::main()
}
