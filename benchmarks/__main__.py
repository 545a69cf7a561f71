"""Run every benchmark and print what it measured: `make bench`."""

import warnings

from benchmarks import checksums, measure, monitor, report, series, small_model, spectra, training, transitions

if __name__ == "__main__":
    warnings.filterwarnings("ignore")  # of the libraries compared with
    spectra.run()
    print()
    series.run()
    print()
    transitions.run()
    print()
    training.run()
    print()
    measure.run()
    print()
    checksums.run()
    print()
    small_model.run()
    print()
    monitor.run()
    print()
    report.run()
