//! Every case of the conformance suite, for every store.

use crate::stores;

leasehold_testkit::conformance_tests!(memory, (stores::memory));
leasehold_testkit::conformance_tests!(own, (stores::own));
leasehold_testkit::conformance_tests!(sqlite, (stores::sqlite));
leasehold_testkit::conformance_tests!(on_postgres, (stores::postgres));
leasehold_testkit::conformance_tests!(redis, (stores::redis));
leasehold_testkit::conformance_tests!(tls, (stores::tls));
leasehold_testkit::conformance_tests!(strict, (stores::strict));
leasehold_testkit::conformance_tests!(copies, (stores::copies));
leasehold_testkit::conformance_tests!(cluster, (stores::cluster));
leasehold_testkit::conformance_tests!(quorum, (stores::quorum));
