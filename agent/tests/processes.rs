fn main() {
    gleaner_agent::run_as_runner_if_asked();
}
