-- SPDX-License-Identifier: GPL-2.0
-- Microwatt's PMU, which takes the steps of standard input and prints its registers after each.
--
-- A step is a line of hexadecimal fields:
--   flags            as below
--   number, value    a register, and what mtspr writes to it
--   nia, addr        addresses of the instruction in execution and of its data
--
-- It takes two clocks. In the first one happens what the line describes. In the second one nothing
-- happens, and the run latch is off: the PMU reacts to a counter that became negative in the first.
library ieee;
use ieee.std_logic_1164.all;
use ieee.numeric_std.all;
use std.textio.all;
use work.common.all;

entity testbench is
end entity;

architecture steps of testbench is
    constant PR        : natural := 0;
    constant PMM       : natural := 1;
    constant RUN       : natural := 2;
    constant COMPLETES : natural := 3;
    constant BRANCHES  : natural := 4;
    -- Every event that has no flag of its own.
    constant OTHERWISE : natural := 5;
    constant HAS_DATA  : natural := 6;
    constant MTSPR     : natural := 7;
    -- Each bit of the time base that MMCR0[TBSEL] can select changes from 0 to 1.
    constant TIME_BASE : natural := 8;

    type numbers is array (natural range <>) of natural;
    -- PMC1 to PMC6, MMCR0, MMCR1, MMCR2, MMCRA, SIAR, SDAR, SIER.
    constant REGISTERS : numbers := (787, 788, 789, 790, 791, 792, 795, 798, 785, 786, 796, 797, 784);

    signal clk, rst : std_ulogic := '0';
    signal to_pmu   : Execute1ToPMUType;
    signal from_pmu : PMUToExecute1Type;
begin
    pmu: entity work.pmu port map (clk => clk, rst => rst, p_in => to_pmu, p_out => from_pmu);

    process
        variable step, answer     : line;
        variable flags            : std_ulogic_vector(11 downto 0);
        variable number           : std_ulogic_vector(11 downto 0);
        variable value, nia, addr : std_ulogic_vector(63 downto 0);

        procedure tick is
        begin
            clk <= '0';
            wait for 1 ns;
            clk <= '1';
            wait for 1 ns;
        end procedure;
    begin
        to_pmu.mfspr <= '0';
        to_pmu.mtspr <= '0';
        to_pmu.tbbits <= "0000";
        rst <= '1';
        tick;
        rst <= '0';

        while not endfile(input) loop
            readline(input, step);
            hread(step, flags);
            hread(step, number);
            hread(step, value);
            hread(step, nia);
            hread(step, addr);

            to_pmu.pr_msr <= flags(PR);
            to_pmu.pmm_msr <= flags(PMM);
            to_pmu.run <= flags(RUN);
            to_pmu.occur <= (instr_complete => flags(COMPLETES),
                             br_taken_complete => flags(BRANCHES),
                             others => flags(OTHERWISE));
            to_pmu.mtspr <= flags(MTSPR);
            to_pmu.spr_num <= number(4 downto 0);
            to_pmu.spr_val <= value;
            to_pmu.tbbits <= (others => flags(TIME_BASE));
            to_pmu.nia <= nia;
            to_pmu.addr <= addr;
            to_pmu.addr_v <= flags(HAS_DATA);
            tick;

            to_pmu.run <= '0';
            to_pmu.occur <= (others => '0');
            to_pmu.mtspr <= '0';
            to_pmu.tbbits <= "0000";
            tick;

            for at in REGISTERS'range loop
                to_pmu.spr_num <= std_ulogic_vector(to_unsigned(REGISTERS(at) mod 32, 5));
                wait for 1 ps;
                hwrite(answer, from_pmu.spr_val);
                write(answer, ' ');
            end loop;
            write(answer, from_pmu.intr);
            writeline(output, answer);
        end loop;
        wait;
    end process;
end architecture;
