"""Every silent error of a training, and the test which shows that fulldeck reports it: rejected or reported before the
first step, or within the first ones. Codes as in `fulldeck explain` and docs/python.md; tests/python/test_silent.py
checks that each case exists."""

# code -> (what happens, the tests that inject it)
ROWS = {
    "A7": ("each rank makes a group of its own", ["python/test_silent.py::test_what_is_wrong_before_the_first_step_is_refused_or_said", "python/test_silent_scripts.py::test_each_silent_error_is_one_warning_and_strict_ends_with_a_code_of_its_own"]),
    "A8": ("Accelerate takes every rank for the only one", ["python/test_frameworks.py::test_a_rank_that_accelerate_takes_for_the_only_one_is_refused"]),
    "A9": ("the program waits for ranks that nobody started", ["python/test_silent.py::test_what_is_wrong_before_the_first_step_is_refused_or_said",
                                                               "launcher/test_network_hosts.py::test_a_host_that_never_comes_is_named_after_the_time_to_join"]),
    "B6": ("cards idle, the model is on the processors", ["python/test_silent.py::test_what_is_wrong_before_the_first_step_is_refused_or_said",
                                                          "launcher/test_run_cards.py::test_an_idle_card_is_named_and_ends_the_run_when_that_was_asked_for", "python/test_silent_scripts.py::test_cards_that_are_not_used_as_the_launcher_gave_them", "python/test_silent_scripts.py::test_parameters_on_the_cpu_of_a_rank_with_an_nvidia_card_are_observed"]),
    "B8": ("two ranks on one card", ["python/test_silent.py::test_what_is_wrong_before_the_first_step_is_refused_or_said",
                                     "launcher/test_run_cards.py::test_more_ranks_than_cards_is_refused_and_both_ways_out_are_named",
                                     "launcher/test_run_cards.py::test_a_script_that_ignores_local_rank_is_found_out", "python/test_silent_scripts.py::test_cards_that_are_not_used_as_the_launcher_gave_them", "python/test_silent_scripts.py::test_a_card_is_named_as_all_ranks_of_the_node_name_it"]),
    "B9": ("cards hidden by a variable, and indexed by LOCAL_RANK", ["python/test_silent.py::test_what_is_wrong_before_the_first_step_is_refused_or_said", "python/test_silent_scripts.py::test_cards_that_are_not_used_as_the_launcher_gave_them", "python/test_silent_scripts.py::test_double_indexing_is_observed_where_it_leads_to_another_card"]),
    "C1": ("one process where several were meant, as the log admits", ["python/test_silent_scripts.py::test_cards_that_are_not_used_as_the_launcher_gave_them"]),
    "C6": ("ranks died, and the run \"finished\"", ["launcher/test_run_failures.py::test_all_exit_codes_are_reported_and_passed_on", "python/test_silent_scripts.py::test_each_silent_error_is_one_warning_and_strict_ends_with_a_code_of_its_own"]),
    "F2": ("samples that are broken or missing, replaced by others", ["vision/test_train_job.py::test_a_broken_file_is_named_and_counted_and_never_replaced", "python/test_silent_scripts.py::test_each_silent_error_is_one_warning_and_strict_ends_with_a_code_of_its_own"]),
    "F6": ("training and validation have the same files", ["vision/test_train_job.py::test_the_same_files_in_both_parts_are_refused", "python/test_silent_scripts.py::test_each_silent_error_is_one_warning_and_strict_ends_with_a_code_of_its_own"]),
    "F7": ("all labels are the same", ["vision/test_train_job.py::test_labels_are_looked_at_before_the_first_step", "python/test_silent_scripts.py::test_each_silent_error_is_one_warning_and_strict_ends_with_a_code_of_its_own"]),
    "G2": ("weights that do not fit are left out", ["vision/test_train_job.py::test_weights_that_do_not_fit_are_refused_with_every_key", "python/test_silent_scripts.py::test_each_silent_error_is_one_warning_and_strict_ends_with_a_code_of_its_own"]),
    "G5": ("all ranks save to the same file; a fixed number of processes; the same random state", ["python/test_silent.py::test_what_is_wrong_before_the_first_step_is_refused_or_said",
                                                                            "python/test_silent.py::test_the_first_steps_show_what_is_wrong", "python/test_silent_scripts.py::test_a_sound_script_has_no_warning_under_strict"]),
    "J1": ("every rank trains on the same batches", ["python/test_silent.py::test_the_first_steps_show_what_is_wrong"]),
    "J2": ("the same order in every epoch", ["python/test_silent.py::test_the_first_steps_show_what_is_wrong"]),
    "J3": ("replicas that differ", ["python/test_silent.py::test_the_first_steps_show_what_is_wrong"]),
    "J4": ("gradients that nobody reduced", ["python/test_silent.py::test_the_first_steps_show_what_is_wrong"]),
    "J5": ("only one rank works", ["python/test_silent.py::test_the_first_steps_show_what_is_wrong"]),
    "J6": ("NaN or Inf in gradients or losses", ["python/test_silent_scripts.py::test_each_silent_error_is_one_warning_and_strict_ends_with_a_code_of_its_own"]),
}
