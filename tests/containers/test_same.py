"""What holds for pods as processes holds for pods in containers: the tests of `tests/kubelet`, run again in an engine."""

from tests.kubelet.images.test_builds_either_way import (  # noqa: F401
    test_an_ignore_file_named_after_the_dockerfile_holds_alone,
    test_command_user_directory_and_variables_are_the_images_unless_the_pod_says_others,
    test_the_images_stop_signal_asks_its_program_to_end,
)
from tests.kubelet.network.test_host_ports import (  # noqa: F401
    test_a_port_of_this_machine_leads_to_the_pod_until_it_ends,
    test_a_port_that_is_taken_is_said_and_opened_when_it_is_free,
)
from tests.kubelet.network.test_namespaces import (  # noqa: F401
    test_a_pod_that_comes_later_is_known_to_those_that_run,
    test_a_pods_own_aliases_come_before_the_clusters_names_and_are_nobody_elses,
    test_names_resolve_and_every_pod_keeps_its_port,
)
from tests.kubelet.network.test_pod_reach import (  # noqa: F401
    test_http_reaches_pods_and_services_by_every_name_and_address,
)
from tests.kubelet.prober.test_prober import (  # noqa: F401
    test_a_hook_that_fails_is_said,
    test_a_pod_that_is_not_alive_is_killed_and_runs_again,
    test_a_probe_that_hangs_has_failed,
    test_hooks_run_after_the_start_and_before_the_end,
)
from tests.kubelet.shim.test_isolation import (  # noqa: F401
    test_a_container_is_asked_by_the_signal_that_it_names,
    test_a_pod_that_kills_everything_kills_itself_alone,
    test_a_pod_that_shares_processes_and_has_one_container_sees_its_own_alone,
    test_a_program_without_a_handler_ends_at_once_and_may_kill_itself,
    test_an_ephemeral_container_sees_the_processes_of_its_pod_alone,
    test_containers_of_a_pod_share_ipc_and_memory,
    test_kill_1_ends_the_container,
    test_only_the_first_process_is_asked_to_end,
    test_pods_that_ask_for_the_machines_namespaces_have_them,
    test_two_pods_never_meet,
    test_what_a_pipe_leads_to_is_asked_after_the_program_that_saves,
    test_what_a_shell_leaves_behind_is_asked_too_and_gets_the_rest_of_the_grace,
)
from tests.kubelet.streams.test_exec_sessions import (  # noqa: F401
    test_an_exec_outlives_a_restart_of_neither_server_nor_container,
    test_what_cannot_be_entered,
    test_who_goes_in_has_the_pods_network_and_name,
    test_who_goes_in_sees_the_pods_volumes,
)
from tests.kubelet.volumes.test_volumes import (  # noqa: F401
    test_a_claim_is_a_directory_that_outlives_pods_and_goes_with_the_claim,
    test_config_maps_secrets_fields_and_their_sum_are_files,
    test_files_follow_their_config_map_and_labels_while_the_pod_runs,
    test_init_containers_hand_over_through_an_empty_dir,
    test_memory_is_shared_by_containers_survives_restarts_and_has_a_limit,
    test_optional_things_may_be_missing,
    test_what_cannot_be_mounted_waits_with_a_sentence,
)
from tests.kubelet.worker.test_containers import (  # noqa: F401
    test_containers_of_a_pod_each_have_a_log_and_an_end,
    test_events_say_which_container_they_are_about,
)
from tests.kubelet.worker.test_kubelet import (  # noqa: F401
    test_a_program_that_is_not_there_is_a_start_error,
    test_a_server_that_goes_and_comes_back_loses_nothing,
    test_active_deadline,
    test_exit_codes,
    test_logs_follow_to_the_end_and_survive_the_pod,
    test_missing_config_maps_wait_and_found_ones_are_in_the_environment,
    test_pods_outlive_the_pod_host_and_get_a_new_one,
    test_pods_that_vanished_from_the_store_are_killed,
    test_the_operators_init_container_waits_for_the_master,
)
from tests.kubelet.worker.test_security_context import test_last_words  # noqa: F401
from tests.kubelet.worker.test_stops import (  # noqa: F401
    test_a_deadline_is_told,
    test_a_deleted_pods_end_is_told,
    test_a_failed_probe_is_told,
    test_a_grace_of_the_pod_below_a_kubelets_is_that_of_a_kubelet,
    test_a_pod_that_is_deleted_by_force_saves_as_on_a_kubelet,
)
