//! Figures in the tables that other programs print.

use crate::sample::Error;

/// The figure in the column `name`, of the row below the line of names that begins with `first`.
///
/// perftest's two columns `BW peak` and `BW average` are `peak` and `average` here.
///
/// # Errors
/// There is no such line, row or column, or the figure is no number.
pub(crate) fn column(table: &str, first: &str, name: &str) -> Result<f64, Error> {
    let words = |line: &str| -> Vec<String> {
        line.split_whitespace().filter(|word| *word != "BW").map(str::to_owned).collect()
    };
    let mut lines = table.lines().map(words);
    let head = lines.find(|head| head.first().is_some_and(|word| word == first));
    let figure = head
        .zip(lines.next())
        .and_then(|(head, row)| row.get(head.iter().position(|word| word == name)?)?.parse().ok());
    Ok(figure.ok_or_else(|| format!("no {name} in {table:?}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column__of_perftest() {
        let bandwidth = "Data ex. method : Ethernet\n----\n \
             #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n \
             65536      27667            0.00               14.49  \t\t   0.027642\n----\n";
        let of = |name| column(bandwidth, "#bytes", name).unwrap();
        assert_eq!((of("average[Gb/sec]"), of("MsgRate[Mpps]")), (14.49, 0.027_642));
        let latency = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    \
             t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n \
             64      5000          8.40     3749.86      8.83     \t  17.54   \t112\n";
        assert_eq!(column(latency, "#bytes", "t_typical[usec]").unwrap(), 8.83);
        let why = column("Couldn't connect\n", "#bytes", "t_typical[usec]").unwrap_err();
        assert!(why.to_string().contains("Couldn't connect"), "{why}");
    }

    #[test]
    fn column__of_libfabric() {
        let table = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer\n\
                     1m      10      =10      20m        11.01s      1.90    550497.88\n";
        assert_eq!(column(table, "bytes", "MB/sec").unwrap(), 1.90);
        assert!(column("", "bytes", "MB/sec").is_err());
        assert!(column("bytes MB/sec\n", "bytes", "MB/sec").is_err());
        assert!(column(table, "bytes", "time").is_err());
    }
}
