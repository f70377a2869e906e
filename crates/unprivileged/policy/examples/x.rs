//! x
use bastle_policy::*;
fn main() {
    let path = |t: &str| bastle_contract::AbsPath::new(t).unwrap();
    let s = Surroundings { home: path("/home/u"), workspace: path("/home/u/w") };
    let e = merge(&[preset("safe-unrestricted").unwrap()], &s, &MergeOptions::default()).unwrap();
    for q in std::env::args().skip(1) {
        let q = Query::parse(&q, &s).unwrap();
        let d = decide(&e, &q);
        println!("{}", explain(&d, &q));
        let t = std::time::Instant::now();
        for _ in 0..1000 { std::hint::black_box(decide(&e, &q).outcome); }
        println!("   {:?}/call", t.elapsed() / 1000);
    }
    let t = std::time::Instant::now();
    let l = vec![floor().unwrap(), preset("default").unwrap()];
    println!("presets {:?}", t.elapsed());
    let t = std::time::Instant::now();
    let e = merge(&l, &s, &MergeOptions::default()).unwrap();
    println!("merge {:?}", t.elapsed());
    let t = std::time::Instant::now();
    std::hint::black_box(needs(&e));
    println!("needs {:?}", t.elapsed());
    println!("{}", e.headline());
}
