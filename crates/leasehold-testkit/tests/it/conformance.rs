//! Every case of the conformance suite, for every store.

use crate::stores;

leasehold_conformance::conformance_tests!(memory, (stores::memory));
leasehold_conformance::conformance_tests!(own, (stores::own));
leasehold_conformance::conformance_tests!(sqlite, (stores::sqlite));
leasehold_conformance::conformance_tests!(on_postgres, (stores::postgres));
leasehold_conformance::conformance_tests!(redis, (stores::redis));
leasehold_conformance::conformance_tests!(tls, (stores::tls));
leasehold_conformance::conformance_tests!(strict, (stores::strict));
leasehold_conformance::conformance_tests!(copies, (stores::copies));
leasehold_conformance::conformance_tests!(cluster, (stores::cluster));
leasehold_conformance::conformance_tests!(quorum, (stores::quorum));
