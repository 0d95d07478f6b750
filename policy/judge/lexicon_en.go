package judge

// enWords is the English part of the lexicon, in lower case and without apostrophes, with a few words of
// other languages that occur in English messages. The notation is that of [expand].
//
// Words of requests, objections and results are in no class: not, but, please,
// will, now, fixed.
var enWords = [classCount]string{
	filler: `
		oh ooh oooh ah ahh aw aww hmm hm ha hah heh yo well so then mwah xoxo indeed there and gosh gee dang damn
		in_that_case at_{the,this}_{moment,time} for_{now,the_moment} then_again
		whew yeehaw woo fr ngl tbh honestly btw man mmm uh um yknow anyway anyways really all_in_all overall
		in_short wowza aha though hmmm`,
	title: `
		everyones everybodys everyone everybody all {,the_whole_,the_,this_,whole_,you_}{team,crew,gang,squad} {you_,}guys
		{,my_,dear_,kind_}{folks,friend,friends,fam,buddy,mate,mates,sir,madam,bro,bros,dude}
		{,my_,dear_,kind_}{man,pal,boss,colleagues,teammates,teammate,fellow,fellas,legends,champ,ladies,gentlemen}
		yall you_all you_both people dear bud buds chief homie homies king queen queens kings star stars rockstar
		dream_team everyone_involved all_of_you each_and_every_one_of_you every_one_of_you one_and_all
		the_entire_team the_whole_group everyone_here teamies you_two you_three guys_and_gals`,

	nod: `
		ok okay okey okie okeydokey okey_dokey okie_dokie oki okk k kk sure sure_thing for_sure yes yes_indeed yep
		yeah yup ya yea aye alright all_right alrighty right got_{it,that,ya,you} gotcha understood noted duly_noted
		roger roger_that copy copy_that {that_,it_,}{all_,}sounds_{good,great,perfect,fine,lovely}{,_to_me,_to_us}
		{that_,it_,}{all_,}sounds_{wonderful,awesome,fantastic,excellent,right,fair}{,_to_me,_to_us}
		sounds_like_a_{great_,good_,solid_,}plan
		{that_,it_,}{totally_,all_,definitely_,perfectly_,}makes_{,total_,perfect_,complete_}sense{,_to_me}
		fair_enough of_course certainly definitely absolutely exactly precisely totally so_true very_true agreed
		deal {that_is,thats,youre}_{,so_,absolutely_,totally_,very_,quite_}{right,true,correct,fair,fine}
		{you_are,quite,very}_{,so_,absolutely_,totally_,very_,quite_}{right,true,correct,fair,fine} i_see
		as_you_wish by_all_means received acknowledged message_received naturally loud_and_clear fine_by_me
		noted_and_understood {i_,}will_{keep_{that,it,this}_in_mind,do_my_best} oui si_si correct
		aye_aye right_on wow whoa yay woohoo {woo_,}woo{_hoo,} woot hooray hurray huzzah {ha,}haha{ha,}{ha,}
		hehe{he,} lol lmao rofl phew boom omg yippee yessir ofc np_ok bet word yass yas cool_cool
		{,ah_,oh_}that_explains_{it,everything,a_lot}
		{that_,this_,it_,}{exactly_,perfectly_,}{matches,match}_my_understanding{,_exactly,_perfectly}
		{that_,this_,it_,}{exactly_,perfectly_,}{matches,match}_my_{thinking,view}{,_exactly,_perfectly}
		good_to_know
		{its,thats,that_is}_{all_,perfectly_,very_,crystal_,}clear{,_to_me,_on_my_end}{,_now} point_taken well_noted
		{thats,its,that_is,it_is}_{fine,good,perfect,great,correct,right,fair_enough}{,_by_me,_with_me,_for_me}
		same_here yup_yup so_be_it {i_,}hear_{you,ya} {i_,}couldnt_have_said_it_better okey_doke
		{looks,seems,sounds}_like_{were,we_are}_{all_,}{on_the_same_page,in_agreement}{_here,_then,}
		{looks,seems,sounds}_like_{were,we_are}_{all_,}{aligned,in_sync,set}{_here,_then,}
		{were,we_are,im,i_am,glad_were}_{all_,fully_}{on_the_same_page,aligned}{,_then,_here,_on_this}
		{were,we_are,im,i_am,glad_were}_{completely_,totally_,}{on_the_same_page,aligned}{,_then,_here,_on_this}
		{were,we_are,im,i_am,glad_were}_{all_,fully_}{in_agreement,in_sync}{,_then,_here,_on_this}
		{were,we_are,im,i_am,glad_were}_{completely_,totally_,}{in_agreement,in_sync}{,_then,_here,_on_this}
		thats_what_i_{thought,think,was_thinking} you_got_it got_it_all good_deal that_works{,_for_me,_for_us}
		works_for_{me,us} {it_,that_,this_,}all_makes_{sense,perfect_sense}{,_now} makes_sense_now
		{solid,good,great,sensible}_plan sounds_like_a_plan i_dont_think_so`,
	agree: `
		{i_,we_,}{,totally_,completely_,fully_,wholeheartedly_,strongly_,absolutely_,definitely_,really_}agree
		{i_,}{couldnt,could_not,cant}_agree_more {i_,}concur {were_,we_are_,}on_the_same_page
		{i_,}{second,seconded}_{that,this} {im_,i_am_,}{right_,totally_,}with_you great_minds_think_alike
		agreed_on_all_{points,counts,fronts} {i_,}see_it_the_same_way {im_,}all_for_it
		{fully,totally,completely,well}_aligned {so_,}aligned in_{full,total,complete}_agreement hear_hear
		amen_to_that wholeheartedly with_everything_{you,youve}_{said,mentioned}
		everything_{you,youve}_{said,mentioned}`,
	view: `
		point points view views perspective take opinion assessment sentiment every_word one_hundred_percent`,

	thank: `
		thanks thank_{you,u,ya,yall} thankyou thx thnx thanx tnx tks ty tysm tyvm cheers appreciated appreciate
		appreciative grateful gratitude thankful obliged {i_,}owe_you_{one,a_coffee,a_beer}
		couldnt_have_done_it_without_{you,you_all,everyone,the_team,your_help} merci{,_beaucoup} {muchas_,}gracias
		danke arigato arigatou grazie obrigado spasibo a_big_thank_you big_thanks many_thanks hats_off
		tip_of_the_hat
		{i_,we_,}{really_,just_,}{cant,cannot,can_not,couldnt}_thank_{you,everyone,the_team,you_all}_enough
		{big_,huge_,massive_,special_,}{shoutout,shout_out,shoutouts,thank_yous,thankyou,thank_you}_to ta tyty thks
		thank_god thank_goodness
		{you_have_,with_,}{my_,our_}{deepest_,sincere_,heartfelt_,}{gratitude,thanks,appreciation} appreciation
		{im_,i_am_,so_,}{in_your_debt,indebted_to_you} {i_,}learned_{a_lot,so_much,a_ton,something_new,a_great_deal}
		{i_,}learned_{a_lot,so_much}_from_{you,this,that,it,our_conversations,everyone}
		{i_,}learned_{a_ton,something_new,a_great_deal}_from_{you,this,that,it,our_conversations,everyone}
		{i_,}learned_{a_lot,so_much,a_ton,something_new,a_great_deal}{_here,_today}
		{i_,}{always_,}learn_{a_lot,so_much,something_new}_from_{you,this,our_conversations}
		{i_,}{always_,}learn_{a_lot,so_much,something_new}_from_{our_chats,our_discussions,everyone}
		been_{so_,super_,very_,incredibly_}{big_,huge_,great_,real_,}{helpful,kind,patient,help}
		been_{so_,super_,very_,incredibly_}{big_,huge_,great_,real_,}{wonderful,amazing,great,awesome}
		been_{extremely_,really_,such_a_,a_,}{big_,huge_,great_,real_,}{helpful,kind,patient,help}
		been_{extremely_,really_,such_a_,a_,}{big_,huge_,great_,real_,}{wonderful,amazing,great,awesome}
		saved_{me_,us_,}{a_lot_of_time,so_much_time,hours,my_day,the_day,a_ton_of_time} gratefully
		{thank,than}_{you_,}{so,very}_much thanks_alot thank_a_lot than_you
		but_{thanks,thank_you} {thank,thanks}_{a_bunch,you_ever_so_much,mucho} thank_for
		{youve,you_have}_{done,helped}_{more_than_enough,enough,so_much,a_lot,plenty}
		been_{a_lot,a_great_deal,lots}_of_help thanks_{anyway,anyways,though}
		how_{grateful,thankful,happy,glad,proud}_{i_am,we_are}`,
	given: `
		helping supporting supportive patience patient understanding effort efforts cooperation cooperating quickly
		prompt speedy swift timely responses responding replies replying updating explanations explaining
		clarifications clarifying confirming heads_up reminder reminding inputs insight insights insightful
		assisting attention word words checking looking_into participating participation pointing_out pointing
		catching discussions conversation thought thoughts thoughtful thoughtfulness thorough thoroughness detailed
		clear concise kind generous valuable invaluable perspective perspectives suggestion suggestions suggesting
		guidance guiding tips contribution contributions contributing kindness generosity sharing
		letting_{me,us,everyone}_know having_{me,us} being hard_work hardwork hard dedication dedicated commitment
		professionalism expertise knowledge trusting encouragement encouraging compliment compliments recognition
		acknowledgement acknowledgment turnaround following_up coordination coordinating jumping_in pitching_in
		stepping_in chiming_in weighing_in hosting organizing organising leading leadership listening
		taking_{the,your}_time{,_to_{explain,clarify,share,help,answer,respond,walk_{me,us}_through}{,_this,_that,_it}}
		closing_the_loop{,_on_{this,that}} wrapping_{this,it,that,everything}_up{,_so_quickly} double_checking clearly
		getting_to_the_bottom_of_{this,it,that}
		trouble flagging noticing spotting answering answers summarizing summarising teaching
		consideration considerate warm warmth caring courtesy diligence diligent enthusiasm energy positivity
		welcoming involved concerned
		making_{this,it}_{happen,possible,work,easy,easier,fun,smooth,so_easy,a_success,such_a_success} attitude
		spirit attention_to_detail sincere sincerely heartfelt genuinely inspiration inspiring offering
		getting_back_to_{me,us} getting_back running_through walking_{me,us}_through
		keeping_{me,us,everyone}_{posted,updated,informed,in_the_loop} bearing_with_{me,us}
		putting_{this,it,everything}_together on_{this,it,that,everything}
		{,everything_,all_,all_that_,what_}{you,youve,you_all,you_guys}_{do,did,done,have_done}
		going_above_and_beyond going_the_extra_mile staying_late good_catch everything_{this,the,our}_team_does
		transparency openness explanation recap summary bringing_us_together getting_{this,it}_done taking_care
		closing keeping_us_on_track the_details ideas idea walkthrough overview breakdown analysis review reviewing
		pace vibes humor humour grace word_choice careful speed efficiency communication quality precision
		way_with_words you_have process whole explanation_was contributions_of calm calmly professionally momentum
		motivation flexibility difference handover feedback_it motivates motivating reliability creativity passion
		drive partner brilliance honesty candor directness assistance service experience hospitality
		friendliness cheerfulness tireless unwavering continued outstanding`,
	noun: `
		help support update updates note notes message offer trust care invite answer reply response welcome wishes
		time moment input follow_up followup summary recap discussion feedback confirmation explanation share guide
		search research detail details tidbit assist business service services booking confidence
		everything anything today recommendation recommendations tip advice info information clarification
		assistance immediate fast quick role`,
	praise: `
		great perfect perfectly awesome nice cool excellent fantastic wonderful amazing brilliant lovely good
		impressive impressed superb incredible incredibly outstanding terrific marvelous marvellous splendid stellar
		fabulous beautiful beautifully neat sweet super exceptional exceptionally remarkable phenomenal magnificent
		gorgeous epic solid dope lit rad kudos bravo props_to congrats congratulations congratz grats
		gratz well_{done,said,put,played,deserved,earned} nicely_{done,said,put}
		{great,nice,good,lovely,excellent}_one
		{great,good,nice,excellent,amazing,awesome,solid,terrific,fantastic}_{job,work,catch,point,idea,answer}
		{great,good,nice,excellent}_{summary,explanation,analysis,teamwork,effort,stuff}
		{amazing,awesome,solid,terrific,fantastic}_{summary,explanation,analysis,teamwork,effort,stuff}
		{great,good,nice,excellent}_{call,thinking,question,to_hear,to_know,news}
		{amazing,awesome,solid,terrific,fantastic}_{call,thinking,question,to_hear,to_know,news}
		{great,good,nice,excellent,amazing,awesome,solid,terrific,fantastic}_{chat,talk,spirit,shot,going,show,team}
		helpful clever smart insightful inspiring delightful best legend legendary legends lifesaver life_saver
		rockstar rockstars rock_star genius hero heroes champion champions superstar superstars way_to_go
		love_{it,this,that,to_see_it,to_see_this} keep_{it_up,up_the}
		keep_up_the_{great,good,amazing,awesome,excellent}_{work,spirit,job} spot_on on_point
		{you,you_guys,you_all,yall,team}_{rock,rocks}
		high_five high_fives thumbs_up two_thumbs_up {couldnt,could_not}_have_{said,put}_it_better to_my_ears what_a
		what_an how_{kind,nice,sweet,thoughtful,lovely,wonderful,cool,awesome}{,_of_you,_is_that}
		couldnt_be_{happier,better,prouder} go_team go_us bueno first_class top_notch world_class a_plus chefs_kiss
		{that,this,it}_{was,is,has_been}_{so_,super_,very_,really_,pretty_,quite_,extremely_,}{easy,painless}
		kinda_love_it good_stuff mad_respect hell_yeah heck_yeah_team impeccable insane insanely
		goated gg ggs wp slay banger elite top_tier clutch smooth smoothly stress_free crisp on_fire unreal
		unbelievable mind_blowing lets_goo stellar_work
		what_a_{relief,team,crew,ride,day,session,win,legend,journey,star,way_to_end_the_day} a_gem gem
		{captures,covers,summarizes,sums_up}_{it_all,everything}{,_perfectly,_so_well,_really_well,_nicely}
		{captured,covered,summarized}_{it,this}{,_perfectly,_so_well,_really_well,_nicely}
		{explained,summed_up}_{it,this}{,_perfectly,_so_well,_really_well,_nicely}
		{captured,covered,summarized}_everything{,_perfectly,_so_well,_really_well,_nicely}
		{explained,summed_up}_everything{,_perfectly,_so_well,_really_well,_nicely}
		{captured,covered,summarized}_it_all{,_perfectly,_so_well,_really_well,_nicely}
		{captured,covered,summarized}_{all_,}the_{important,key,main}_points{,_perfectly}
		{captured,covered,summarized}_{all_,}the_{important,key,main}_points{_so_well,_really_well,_nicely}
		{explained,summed_up}_it_all{,_perfectly,_so_well,_really_well,_nicely}
		{explained,summed_up}_{all_,}the_{important,key,main}_points{,_perfectly}
		{explained,summed_up}_{all_,}the_{important,key,main}_points{_so_well,_really_well,_nicely}
		{you_,youve_,you_have_,well_,its_}{totally_,really_,all_,}{deserve,deserved,earned}{_it,_this,}
		well_deserved made_my_{day,week,morning,weekend}
		{that_,this_,it_,}{really_,}{clears,cleared,clears_it}_{everything,things,it}_up{,_for_me,_nicely}
		{that_,this_,it_,}{really_,}{clears,cleared,clears_it}_{it_all,that,this}_up{,_for_me,_nicely}
		clears_up_everything
		{brilliantly,wonderfully,beautifully,perfectly,expertly}_{done,said,put,explained,handled}
		couldnt_ask_for_{a_,}{better,more}
		{so_,very_,really_,super_,}productive dream_team one_in_a_million star_performer gem_of_a
		like_a_{pro,boss,champ} exemplary exquisite tremendous neatly w_team {hats_off,chapeau} respect mad_skills
		you_guys_are_the_best so_proud
		{the_,}{great,good,nice,amazing,awesome,fantastic}_{discussion,session,meeting}
		{the_,}{great,good,nice,amazing,awesome,fantastic}_{collaboration,conversation,call}
		{the_,}{solid,excellent,wonderful,terrific,lovely,brilliant}_{discussion,session,meeting}
		{the_,}{solid,excellent,wonderful,terrific,lovely,brilliant}_{collaboration,conversation,call}
		{the_,}{great,good,nice,amazing,awesome,fantastic}_{recap,wrap_up,overview}
		{the_,}{great,good,nice,amazing,awesome,fantastic}_{breakdown,find,save,teamwork_everyone}
		{the_,}{solid,excellent,wonderful,terrific,lovely,brilliant}_{recap,wrap_up,overview}
		{the_,}{solid,excellent,wonderful,terrific,lovely,brilliant}_{breakdown,find,save,teamwork_everyone}
		{the_,}{great,good,nice,amazing,awesome,fantastic}_{review,write_up,writeup,start}
		{the_,}{solid,excellent,wonderful,terrific,lovely,brilliant}_{review,write_up,writeup}
		{the_,}{solid,excellent,wonderful,terrific,lovely,brilliant}_start
		{the_,}{great,good,nice,amazing,awesome,fantastic}_{finish,execution,coordination}
		{the_,}{great,good,nice,amazing,awesome,fantastic}_{communication,attitude,energy,vibes}
		{the_,}{solid,excellent,wonderful,terrific,lovely,brilliant}_{finish,execution,coordination}
		{the_,}{solid,excellent,wonderful,terrific,lovely,brilliant}_{communication,attitude,energy,vibes}
		thats_{great,awesome,amazing,wonderful,fantastic,lovely,insane}_{news,to_hear,to_know,}
		thats_{crazy,brilliant,excellent,sweet,so_kind,so_nice,good}_{news,to_hear,to_know,}
		{youre,you_are,youve_been}_{a_,such_a_}{big,huge,great,real}_{help,star,gem,peach,asset,treasure}
		{you_were,that_was,thats}_{a_,such_a_}{big,huge,great,real}_{help,star,gem,peach,asset,treasure}
		{have_,}pleasant_day the_goat a_beast music_to_my_ears {makes,made}_all_the_difference awesome_sauce
		keep_up_the_momentum
		{lets,we_will}_keep_{it_up,up_the_momentum,up_the_great_work,the_momentum_going,it_going}
		love_{the,your}_{enthusiasm,energy,spirit,attitude,vibe,idea} so_impressed amazed inspired
		job_well_done well_rounded top_marks full_marks outdid_yourself outdone_yourself
		above_and_beyond {im_,i_,}couldnt_be_{happier,more_pleased} great_minds perfect_timing
		{you_,}always_come_through {you_,}made_this_so_easy a_clear_head_and_a_full_heart
		{totally_,completely_,perfectly_,}in_sync{,_here}`,
	joy: `
		glad happy pleased delighted thrilled excited ecstatic honored honoured proud pleasure honor honour
		privilege privileged enjoyed enjoyable enjoying joy blast fun touched humbled relieved blessed lucky
		fortunate means_{a_lot,so_much,the_world}{,_to_me,_to_us} made_my_{day,week}
		{great,good,nice,lovely,wonderful,awesome,amazing,fantastic,fun,so_good,so_great,so_nice}_to
		{great,good,nice,lovely}_{working,collaborating,chatting,talking,meeting,partnering}
		{wonderful,awesome,amazing,fantastic}_{working,collaborating,chatting,talking,meeting,partnering}
		{loved,love}_{working,collaborating,being,chatting} music_to_my_ears love_you {much_,lots_of_,sending_}love
		hugs big_hug warms_my_heart so_happy_for_{you,you_guys,you_all,everyone} happy_for_{you,you_all}
		{what_a_,}relief good_to_hear love_hearing_{that,this} loved_every_{minute,moment}{_of_it,}
		{its,it_has,its_always}_been_{a_,such_a_,so_}{real_,true_,great_,}{pleasure,joy,privilege,honor,honour}
		{its,it_has,its_always}_been_{absolutely_,an_absolute_,an_}{real_,true_,great_,}{pleasure,joy}
		{its,it_has,its_always}_been_{absolutely_,an_absolute_,an_}{real_,true_,great_,}{privilege,honor,honour}
		{its,it_has,its_always}_been_{a_,such_a_,so_}{real_,true_,great_,}{delight,blast,great}
		{its,it_has,its_always}_been_{a_,such_a_,so_}{real_,true_,great_,}{fun,amazing,wonderful}
		{its,it_has,its_always}_been_{absolutely_,an_absolute_,an_}{real_,true_,great_,}{delight,blast,great}
		{its,it_has,its_always}_been_{absolutely_,an_absolute_,an_}{real_,true_,great_,}{fun,amazing,wonderful}
		{im_,i_am_,were_,}{so_,very_,really_,}proud_of{_you,_you_all,_this_team,_us,_everyone,_the_team,_what}
		smiling {made,makes,making}_me_{smile,happy,so_happy} cant_stop_smiling jazzed stoked pumped
		glad_to_be_of_{help,service,assistance}
		glad_i_could_{help,contribute,assist,be_of_assistance,be_of_help}{,_in_some_small_way,_out,_a_bit}
		on_this_together
		{it,its,it_has}_{been_,was_,}{a,my}_pleasure_{to_{assist,serve,help}_you,assisting_you}
		{always,it_is_always,its_always}_{been_,was_,}{a,my}_pleasure_{to_{assist,serve,help}_you,assisting_you}
		{it,its,it_has,always,it_is_always,its_always}_{been_,was_,}{a,my}_pleasure_{helping_you,serving_you}
		{so_,such_a_,truly_a_,always_a_,a_real_,a_true_,a_great_}{pleasure,honor,honour,privilege,joy,delight,treat}
		{happy,glad}_to_have_been_{of_help,of_service,of_assistance,helpful,a_part_of_{this,it}} motivates_me
		keep_doing_my_best heart_is_full
		{exactly_,just_,}what_i_{was_hoping,wanted,needed,hoped}_to_hear `,
	hope: `
		hope hoping hopefully looking_forward look_forward cant_wait can_not_wait until_next_time till_next_time
		looking_forward_to_{more,next_time,it,the_next_one,our_next_{chat,collaboration,adventure,project,session}}
		{cant,can_not}_wait_{for_more,for_next_time,to_work_together_again,to_see_you,to_do_it_again} heres_hoping
		{i_,}{do_,}hope_{you,everyone,yall,the_team}{_all,} {i_,}hope_{that_,this_,it_}{helps,helped,was_helpful}
		looking_forward_to_{seeing_it,it_all,seeing_{how,where}_it_goes}
		looking_forward_to_{seeing_it_come_to_life,what_comes_next,whats_next,the_results_of_our_teamwork}
		come_to_life`,
	wish: `
		{have,have_yourselves,have_yourself}_{a,an}_{very_,really_,truly_,}{great,good,nice}
		{have,have_yourselves,have_yourself}_{a,an}_{very_,really_,truly_,}{wonderful,lovely,awesome}
		{have,have_yourselves,have_yourself}_{a,an}_{very_,really_,truly_,}{fantastic,amazing,excellent}
		{have,have_yourselves,have_yourself}_{a,an}_{very_,really_,truly_,}{productive,pleasant,restful}
		{have,have_yourselves,have_yourself}_{a,an}_{very_,really_,truly_,}{relaxing,safe,blessed}
		{have,have_yourselves,have_yourself}_{a,an}_{very_,really_,truly_,}{beautiful,peaceful,fabulous}
		{have,have_yourselves,have_yourself}_{a,an}_{very_,really_,truly_,}{terrific,super,happy}
		{have,have_yourselves,have_yourself}_{a,an}_{very_,really_,truly_,}{splendid,brilliant,smooth,fun} enjoy
		wishing {sending,with}_{my_,our_,}best_wishes best_wishes all_the_{very_,}best best_of_luck good_luck
		best_regards {kind_,warm_,warmest_,kindest_,}regards fingers_crossed
		stay_{safe,healthy,well,awesome,positive,warm,cool,strong,golden,hydrated}{,_and_{healthy,safe,well,happy}}
		rest_{well,up} get_some_{rest,well_deserved_rest,sleep} sleep_{well,tight}
		safe_{travels,trip,journey,flight}
		happy_{weekend,new_year,holidays,friday,birthday,monday,holiday,easter,thanksgiving,coding}
		merry_{christmas,xmas} happy_lunar_new_year may_{you,you_all,your} {the_,}same_to_{you,you_all,you_too}
		you_too back_at_{you,ya} right_back_at_{you,ya} you_as_well {cheers,heres}_to
		{yours_,}{sincerely,truly,faithfully} best cheers_to bon_voyage bon_appetit onward_and_upward godspeed
		best_of_everything to_many_more heres_to_many_more
		have_a_{fine,good_rest_of_your,great_rest_of_your,nice_rest_of_your}
		have_a_{delightful,pleasant,stupendous,marvelous,joyful}
		have_a_{chill,cozy,glorious,superb,sweet,blast,ball,good_one,great_one,nice_one}
		have_{fun,a_safe_trip,safe_travels} {please_,}enjoy_{your,the,it,yourself,yourselves,every_moment} gl hf
		glhf good_luck_{everyone,all,team}
		sure_{it,youll,theyll,everything}_{will_,}{go,be,do,turn_out}_{great,well,fine,smoothly}
		{youll,you_will,itll,it_will}_{do,be,go}_{great,fine,amazing,awesome,well}
		{ill_be_,i_will_be_,well_be_,}{cheering,rooting}{_you_on,_for_you,_for_you_all} get_home_safe{ly,}
		drive_safe{ly,} take_it_slow {get_well,feel_better}{_soon,} have_it_{great,good} all_the_luck
		happy_{trails,travels,building,shipping,hacking,fridays,hump_day,new_week,coding,anniversary}
		heres_to_{the_next_one,more,many_more,us,you,the_team,success,great_teamwork} onward onwards upward
		keep_{rocking,shining,being_awesome,being_you,on_rocking} god_bless bless_you break_a_leg
		{get,grab}_some_{rest,sleep,well_deserved_rest} {gets,get}_some_{well_deserved_,}rest
		may_the_force_be_with_{you,us} stay_{classy,curious,amazing} rest_well_and_recharge
		recharge{,_for_tomorrow,_your_batteries,_well} {the_,}rest_of_{your,the}_{day,evening,week,weekend}
		to_a_job_well_done same_to_you same_to_you_all {you_,}know_where_to_find_me
		until_we_{meet,work_together}_again upwards`,
	bye: `
		bye goodbye bye_bye byebye byee bye_for_now good_bye ciao cya farewell adios au_revoir sayonara
		{see,catch}_{you,ya,u,yall,you_all,everyone}
		{talk,chat,speak}_{soon,later,to_you_soon,to_you_later,tomorrow,again_soon} laters
		until_{next_time,then,tomorrow,we_meet_again} till_next_time cheerio so_long take_care take_it_easy
		good_{morning,afternoon,evening,night,day} goodnight gnight nighty_night sweet_dreams ttyl gn gm hi hello
		hey hiya howdy greetings signing_off over_and_out
		{thats,that_is,that_was}_{all,it,everything}{,_from_me,_for_now,_for_today,_from_my_side,_then,_i_needed}
		nothing_{else,more}{,_from_me,_from_my_side,_from_my_end,_on_my_side,_on_my_end}
		no_{further,more,other}_questions{,_from_me,_from_my_side} keep_in_touch stay_in_touch peace peace_out
		have_a_good_one {dont,do_not}_be_a_stranger welcome_{aboard,to_the_team,back}
		is_all thats_all_folks thatll_do{,_it} that_will_do{,_it} that_should_do{_it,}
		{all,everything}_i_{need,needed,wanted,want}{,_for_now,_today,_to_know}
		{i_think_,looks_like_,}{im,i_am,iam}_{all_,totally_,now_,}{set,done_here}
		{i_think_,looks_like_,}{im,i_am,iam}_{all_,totally_,now_,}{done_for_today,set_for_now,good_for_now}
		{i_have_,ive_got_,i_got_,that_was_,thats_}everything_i_{need,needed,wanted}
		{i_have_,ive_got_,i_got_,that_was_,thats_}all_i_{need,needed,wanted}
		{i_have_,ive_got_,i_got_,that_was_,thats_}all_the_{info,information,details,help}_i_{need,needed,wanted}
		{ill,i_will,let_me}_{let_you_{go,get_back_to_{it,work,your_day}},leave_you_to_it,be_off}
		{ill,i_will,let_me}_{be_on_my_way,get_out_of_your_hair,see_myself_out} let_you_{go,get_back_to_it}
		{thats,its,and_thats,that_is,lets_call_it}_a_{wrap,day} call_it_a_{day,night} wrapping_up{,_here,_then}
		{looks,seems}_like_{were,we_are}_{all_,}{done,finished,set,good}{_here,_for_today,_then,}
		{were,we_are}_{all_,}done_here {that,this,which}_{covers,wraps,concludes}_{everything,it_up,up,this_up}
		{that,this,which}_{covers,wraps,concludes}_{things_up,it_all,our_session,the_discussion}{,_for_today}
		{that,this,which}_{concludes,wraps_up}_{our,the,todays}_{discussion,session,meeting,chat}{,_for_today}
		lets_wrap_{it,this,things}_up{,_here,_for_today} {it,this,everything}_is_{all_,}clear_{to_me,on_my_{end,side}}
		{i_have_,ive_,ive_got_,theres_,}nothing_{to_add,to_say}{,_from_{me,my_side,my_end},_here}
		{i_have_,ive_,ive_got_,theres_,}nothing_{more,else,further}_{to_add,to_say}
		{i_have_,ive_,ive_got_,theres_,}nothing_{more,else,further}_{to_add,to_say}{_from_{me,my_side,my_end},_here}
		nothing_further
		{i_have_,ive_,}no_{further,more,other,additional}_{questions,comments,concerns}{,_from_{me,my_side,my_end}}
		{i_have_,ive_,}no_{further,more,other,additional}_{questions,comments,concerns}{_at_this_time,_for_now} cu
		gotta_{go,run} toodles tata ta_ta toodle_oo later_{gator,gators,all,everyone,folks}
		see_you_{around,soon,later,tomorrow,next_time}{,_everyone,_all}
		see_you_{all_next_time,on_the_next_one,again}{,_everyone,_all}
		have_a_{good,great,nice}_{one,night,evening} good_night_{all,everyone} off_i_go
		until_{later,then,tomorrow,monday} rest_easy sleep_tight
		enjoy_your_{day_off,evening,weekend,day,night,time_off}
		{i_,}{dont,do_not}_need_{anything,any}_{else,more,further}{,_help,_assistance} thats_alright thats_ok
		{no_,nope_,}{that,this}_{is,was,will_be}_{what_i_{wanted,needed,was_looking_for},it}
		{all_,}i_needed_{help_with,at_this_moment,right_now} better_luck_next_time
		{im,i_am}_{done,finished}_{for_now,for_today,here} {i_,}{think_,}this_will_do{_it,} {im,i_am}_done_here
		{thats,that_is}_what_i_{want,wanted,need,needed} {i_dont,i_do_not}_need_help_with_anything_else`,
	kind: `
		{youre,you_are,your,ur}_{,very_,most_,always_,so_,more_than_,super_}welcome welcome no_problem{,_at_all} np
		nw no_{worries,prob,probs,biggie,trouble,sweat,stress,big_deal}{,_at_all} any_time anytime
		{dont,do_not}_mention_it {its,it_was,that_was,think}_nothing{,_of_it} not_at_all
		{its_,the_,it_was_,it_is_,was_,}{all_,entirely_,}{my,our,mine}_pleasure
		{the_,}pleasure_{is,was}_{all_,entirely_,}{mine,ours} pleasures_{all_,}mine with_pleasure all_good
		its_{ok,okay,fine,alright,all_right,all_good,cool}
		thats_what_{im,we_are,were,i_am,friends_are,teammates_are,teams_are}_{here_,}{for,there_for}
		what_{im,were}_here_for too_kind {im_,}flattered you_flatter_me likewise ditto least_{i,we}_could_do
		{sorry,apologies}_{for,about}_{the,any,all_the,all}_{trouble,inconvenience,delay,bother}
		{sorry_again,my_apologies}_{for,about}_{the,any,all_the,all}_{trouble,inconvenience,delay,bother}
		{sorry,apologies,sorry_again,my_apologies}_{for,about}_{the,any,all_the,all}_{confusion,interruption}
		{sorry,apologies,sorry_again,my_apologies}_{for,about}_{the,any,all_the,all}_{disturbance,hassle}
		no_need_to_{thank_me,thank_us,apologize,apologise} no_thanks_{needed,necessary}
		{more_than_,}{glad,happy,pleased,delighted}_{to,i_could,we_could}_{help,assist,be_of_help}{,_out}
		{more_than_,}{glad,happy,pleased,delighted}_{to,i_could,we_could}_{help,assist,be_of_help}_you
		{more_than_,}{glad,happy,pleased,delighted}_{i,we}_could_{help,assist,be_of_help}_with_{this,that}
		{more_than_,}{glad,happy,pleased,delighted}_{to,i_could,we_could}_be_of_service{,_out}
		{more_than_,}{glad,happy,pleased,delighted}_{to,i_could,we_could}_be_of_service_to_you
		{more_than_,}{glad,happy,pleased,delighted}_{to,i_could,we_could}_{be_of_assistance,serve}{,_out}
		{more_than_,}{glad,happy,pleased,delighted}_{to,i_could,we_could}_{be_of_assistance_to,serve}_you
		team_effort
		{it_,it_really_,this_,this_really_}{was,is}_{a_,truly_a_,really_a_}{team,group,joint,collective}_effort
		{it_,it_really_}{was,is}_{such_a_,a_true_,a_real_,all_a_}{team,group,joint,collective}_effort
		{this_,this_really_}{was,is}_{such_a_,a_true_,a_real_,all_a_}{team,group,joint,collective}_effort
		{that_,it_truly_,truly_,really_,}{was,is}_{a_,truly_a_,really_a_}{team,group,joint,collective}_effort
		{that_,it_truly_}{was,is}_{such_a_,a_true_,a_real_,all_a_}{team,group,joint,collective}_effort
		{truly_,really_,}{was,is}_{such_a_,a_true_,a_real_,all_a_}{team,group,joint,collective}_effort
		{it_,}takes_{a_village,two_to_tango} teamwork_makes_the_dream_work credit_goes_to all_credit_to
		all_thanks_to {that_,this_,it_,}{really_,}helps{,_a_lot,_a_ton,_so_much}
		{at_your_service,always_at_your_service,at_your_disposal} {dont,no_need_to}_worry{_about_{it,that,a_thing},}
		{no,theres_no,there_is_no}_rush{,_at_all} {please_,}take_{your,all_the}_time{_you_need,}
		not_a_problem{,_at_all} no_problemo no_bother
		{no,its_no,it_was_no}_{bother,trouble,problem,big_deal}{_at_all,} {my_,our_}door_is_always_open
		{youre,you_are,thats,that_is}_{so_,way_,just_,far_,}too_kind {so_,very_,too_,really_,}kind_of_you
		{everyone,you_all,the_team,you,they}_{here_,}{deserves,deserve}_{the_,all_the_,some_}credit
		all_{the_,}credit_{goes_,}to no_thanks{_needed,} no_thank_{you,yous_needed} {always_,}a_pleasure
		{always_,}happy_to{,_help,_assist}_wherever_i_can wherever_i_can
		{always_,}happy_to_{help,be_of_help,oblige,be_here}{,_out,_anytime,_any_time,_you,_wherever_i_can}
		{always_,}happy_to_{help,be_of_help,oblige,be_here}_{however,whenever}_i_can
		{glad,happy}_i_could_{lend_a_hand,be_useful,pitch_in,play_a_{small_,}part,chip_in}
		{thats,that_is}_what_{teammates,teams,friends,colleagues}_{are_,}{here_,}{for,there_for}
		{thats,that_is}_what_{we,im,were,i_am,we_are}_{are_,}{here_,}{for,there_for} the_least_i_could_do
		all_in_a_days_work dont_{even_,}sweat_it no_hard_feelings just_doing_my_{job,part} {i_,}do_my_best
		{i_,}try_my_best
		couldnt_have_done_it_{alone,without_{you,everyone,each_other,this_team}} you_know_where_to_find_me
		{you_,}know_where_to_{reach,find}_{me,us} all_good_{here,on_my_end,on_my_side}
		all_part_of_the_job good_day_to_you{,_all} {ill_,i_shall_,}take_my_leave
		thats_okay {it_,}should_be_enough{_for_now,}`,

	iff: `
		if in_case should_you should_you_have should_anything whenever_you anytime_you
		if_{theres,there_is,there_are,you_ever,you_have,you_need,anyone,anybody,the_team} when_you_need
		should_you_ever whenever_the_team whenever anytime_anyone as_long_as_you`,
	need: `
		need needs want require any anything something question questions concern concerns issue issues doubt doubts
		more further other else additional additionally help assistance support clarification again future
		in_the_future down_the_road down_the_line along_the_way comes_up come_up pops_up arises arise useful
		in_future ever directly please just always i us me assist is are there there_is theres
		{i,we}_can_{do,help,assist} do you_think_of think_of with_this with_that with_anything from_me as_well
		later_on hand or {i,we}_can
		have_{any,more,further}{,_other,_further,_more,_else}{,_questions,_concerns,_doubts}
		have_{other,additional,anything,some}{,_other,_further,_more,_else}{,_questions,_concerns,_doubts}
		{there_is_,theres_,}anything_{else_,more_,}{i,we}_can_{do,help,assist}{,_with}
		{there_is_,theres_,}anything_{else_,more_,}{i,we}_can_{do,help,assist}{_to_help,_to_support_you,_for_you}
		{comes,come,pops,pop,crops,crop}_up comes_along the_team needs_me run_into stuck get_stuck on_this anyone
		anybody at_all any_{trouble,problems,issues,snags,questions,more_questions,other_questions} else_comes_up
		anything_else_comes_up to_support_you support_you whatever the_future have_any hand_with wherever other_ways
		second_opinion sounding_board extra_pair_of_hands need_me needed required`,
	offer: `
		feel_free {dont,do_not,never,please_dont,please_do_not}_hesitate
		{youre,you_are}_{always_,more_than_,}welcome_to`,
	call: `
		ask asking ask_away just_ask reach reach_out reaching_out contact contacting {let,letting}_{me,us}_know ping
		pinging message call call_on get_in_touch tag mention shout shout_out holler give_me_a_shout
		drop_me_a_{line,message,note} come_back return to_ask poke summon dm any_time anytime at_any_time whenever
		{just_,}say_the_word {give,shoot,drop}_{me,us}_a_{shout,ping,message,line,note,call,holler}
		{ill,i_will}_{be_sure_to_,make_sure_to_,definitely_}{let_you_know,let_everyone_know,reach_out,come_back,ask}
		{ill,i_will}_{certainly_,gladly_,}{let_you_know,let_everyone_know,reach_out,come_back,ask}
		{ill,i_will}_{be_sure_to_,make_sure_to_,definitely_}{ping_you,be_in_touch,shout,holler,get_in_touch}
		{ill,i_will}_{certainly_,gladly_,}{ping_you,be_in_touch,shout,holler,get_in_touch}
		{im,i_am,ill_be,i_will_be}_{here,right_here,around,always_here}
		{im,i_am,ill_be,i_will_be}_{always_around,always_available,only_a_message_away,a_message_away}
		come_{back,to_me,find_me} reach_me find_me stop_by swing_by be_in_touch`,
	here: `
		{im_,i_am_,were_,we_are_,ill_be_,well_be_,ill_always_be_}here{,_to_help,_to_assist}
		{im_,i_am_,were_,we_are_,ill_be_,well_be_,ill_always_be_}here{_for_you,_for_you_all,_if_needed,_anytime}
		{always_,still_,im_always_,were_always_}here{,_to_help,_to_assist,_for_you,_for_you_all,_if_needed,_anytime}
		{i_am_always_,im_right_,im_still_,ill_still_be_}here{,_to_help,_to_assist}
		{i_am_always_,im_right_,im_still_,ill_still_be_}here{_for_you,_for_you_all,_if_needed,_anytime}
		{im_,i_am_,were_,we_are_,ill_be_,well_be_,ill_always_be_}here{_any_time,_to_support_you,_for_anything}
		{im_,i_am_,were_,we_are_,ill_be_,well_be_,ill_always_be_}here{_to_support,_whenever_you_need}
		{im_,i_am_,were_,we_are_,ill_be_,well_be_,ill_always_be_}here{_whenever_you_need_me,_for_everyone}
		{always_,still_,im_always_,were_always_}here{_any_time,_to_support_you,_for_anything}
		{i_am_always_,im_right_,im_still_,ill_still_be_}here{_any_time,_to_support_you,_for_anything}
		{always_,still_,im_always_,were_always_}here{_to_support,_whenever_you_need}
		{always_,still_,im_always_,were_always_}here{_whenever_you_need_me,_for_everyone}
		{i_am_always_,im_right_,im_still_,ill_still_be_}here{_to_support,_whenever_you_need}
		{i_am_always_,im_right_,im_still_,ill_still_be_}here{_whenever_you_need_me,_for_everyone}
		always_{here,around,available,happy_to_help,glad_to_help,at_your_service}{,_for_you,_to_help,_to_assist}
		just_a_{ping,message,mention,shout,tag}_away {one,a}_message_away {ive,i_have,weve}_got_your_back
		{right_,always_,still_,}{standing_by,on_standby,around}{,_and_ready_to_help,_to_help}
		{right_,always_,still_,}{at_your_service,ready_to_help,in_your_corner}{,_and_ready_to_help,_to_help}
		{right_,always_,still_,}{standing_by,on_standby,around}_for_you
		{right_,always_,still_,}{standing_by,on_standby,around}_if_needed
		{right_,always_,still_,}{standing_by,on_standby,around}_whenever_{you_need,the_team_needs}_{me,anything}
		{right_,always_,still_,}{at_your_service,ready_to_help,in_your_corner}_for_you
		{right_,always_,still_,}{at_your_service,ready_to_help,in_your_corner}_if_needed
		{right_,always_,still_,}at_your_service_whenever_{you_need,the_team_needs}_{me,anything}
		{right_,always_,still_,}{ready_to_help,in_your_corner}_whenever_{you_need,the_team_needs}_{me,anything}
		here_if_you_need_{me,anything,us}
		{just_,only_,always_,im_just_}{a_message,a_ping,a_mention,one_message,a_call,one_ping}_away
		{im_only_,always_just_,as_always_im_just_,}{a_message,a_ping,a_mention,one_message,a_call,one_ping}_away
		ready_to_help {ive,i_have,weve,we_have,always_}{_got,}_your_back
		looking_forward_to_{supporting,helping,assisting,working_with}_{you,the_team,everyone,you_all}{_again,_all,}
		`,

	degree: `
		very really truly so soo such much many super extremely incredibly absolutely totally completely highly
		deeply especially particularly most too quite pretty simply just genuinely sincerely greatly immensely a_lot
		a_ton a_bunch loads tons lots a_million a_whole_lot heaps big huge massive real true utterly massively
		hugely wholeheartedly infinitely insanely beyond damn hella freaking mad crazy wildly wonderfully so_so
		super_duper immense alot
		such_an that_much ever_so terribly awfully mighty every always absolute total pure sheer even`,
	quality: `
		clear detailed thorough concise timely helpful kind thoughtful valuable informative quick fast smooth
		productive generous insightful useful patient sweet professional calm organized organised responsive collaborative
		efficient effective accurate precise actionable readable clean lovely welcoming inspiring fun well_written
		well_organized transparent`,
	adverb: `
		again also as_well too always once once_again as_always indeed certainly definitely kindly finally surely
		already still together all everyone everybody in_advance here i_{think,guess,believe,suppose} as_ever
		every_time each_time throughout in_some_small_way from_the_bottom_of_{my,our}_heart on_behalf_of
		{i_,we_,}{just_,}{wanted,want,would_like,id_like}_to_{say,express,thank,add} {just_,}{want,wanted}_to_say
		every_step_of_the_way coming_from_you to_all to_you lots_of one_more_time all_the_way on_this_one today
		for_me for_us to_me to_us in_the_end in_some_way wherever_i_can i_am_thankful as_usual as_planned by_far yet_again
		from_now_on for_sure in_no_time with_ease at_your_best nicely everything_is
		agent being_so being`,
	person: `
		both you u ya your ur yours youre youve yourself yourselves they their them him her u_all yall thee
		each_other one_another ya_all`,
	self: `
		i we us me my our im ive weve were ours myself id wed ill_be i_will_be i_am well_be we_are`,
	thing: `
		this that it its thats these those everything here each every`,
	shared: `
		work working collaborate collaborating collaborated collaboration collaborations partner partnering
		partnership teamwork teaming teaming_up together chatting talking session sessions meeting conversation
		conversations discussion project projects task mission journey experience effort efforts achievement
		achievements accomplishment accomplishments success successes win wins job
		team group crew community company agents group_effort working_with_you{,_all,_both}_on_{this,it}
		{working,work,collaborating,worked}_together_on_{this,it}
		{working,work,collaborating}_with_{everyone,the_team,you_guys}_on_{this,it} contribution learning part bunch
		whole entire adventure chapter many more moments again adventures collabs collab spirit vibes energy news
		{everything_,all_}{what_,}{we,weve,we_have,you}_{all_,}{done,built,accomplished}{,_together,_here,_today}
		{all_that_,all_of_,}{what_,}{we,weve,we_have,you}_{all_,}{done,built,accomplished}{,_together,_here,_today}
		{everything_,all_}{what_,}{we,weve,we_have,you}_{all_,}{achieved,created,made}{,_together,_here,_today}
		{all_that_,all_of_,}{what_,}{we,weve,we_have,you}_{all_,}{achieved,created,made}{,_together,_here,_today}
		{everything_,all_}{what_,}{youve,the_team_has}_{all_,}{done,built,accomplished}{,_together,_here,_today}
		{everything_,all_}{what_,}{we_all,youve_all}_{all_,}{done,built,accomplished}{,_together,_here,_today}
		{all_that_,all_of_,}{what_,}{youve,the_team_has}_{all_,}{done,built,accomplished}{,_together,_here,_today}
		{all_that_,all_of_,}{what_,}{we_all,youve_all}_{all_,}{done,built,accomplished}{,_together,_here,_today}
		{everything_,all_}{what_,}{youve,the_team_has}_{all_,}{achieved,created,made}{,_together,_here,_today}
		{everything_,all_}{what_,}{we_all,youve_all}_{all_,}{achieved,created,made}{,_together,_here,_today}
		{all_that_,all_of_,}{what_,}{youve,the_team_has}_{all_,}{achieved,created,made}{,_together,_here,_today}
		{all_that_,all_of_,}{what_,}{we_all,youve_all}_{all_,}{achieved,created,made}{,_together,_here,_today}
		on_this_together on_this working_on_this_together
		{working,worked,collaborating}_{alongside,beside}_{you,everyone,you_all}
		{working,worked,collaborating}_{alongside,beside}_this_team
		{working,worked,collaborating}_{alongside,beside}_each_and_every_one_of_you
		{working,worked,collaborating}_{alongside,beside}_such_a_{great,talented,amazing}_team
		next_{adventure,chapter,collaboration,project,challenge,one}
		{chatting,speaking,talking,catching_up}_with_{you,everyone,you_all}{_all,}
		consensus agreement alignment insights ideas contributions work_session relationship
		with_{you,you_all,everyone,the_team,such_a_team,this_team} journey_together sprint retro this_one stuff
		thing things party weekend_plans`,
	when: `
		day days weekend evening night morning afternoon week month year holiday holidays season time times trip
		flight home journey today tonight tomorrow soon around next_{time,week,month,year,session,one} later now
		ahead rest rest_of new christmas lunch dinner break coffee meal vacation then year_ahead next_time sleep
		celebration moment well_deserved well_earned for_{now,today,the_day,this_week,tonight,the_weekend}
		at_this_time at_the_moment right_now this_week all_week year_round for_once in_between holidays_ahead off
		day_off time_off hours bright_and_early travels flight_home drive`,
	deed: `
		helping helped helps assisting hearing seeing knowing been having had joined joining learned learning
		contributed contributing serving service meet met found like liked love loved enjoyed useful helpful able
		on_the_same_page aligned well smoothly smooth succeeded finding opportunity chance supporting watching
		to_{always_,}{help,assist,hear,see,know,learn,meet}
		{i,we,you,it}_could_{all_,}{help,assist,be_of_help,be_of_service,contribute,support,work_together}
		{being_,be_,been_,a_,}part assistance being hear see team_so_aligned
		to_{see,hear,know,meet}_{the,this,such,everyone,you,that,it,how}{_team,} seeing_everyone done
		come_together sharing working_together chat chatting laugh laughs team_aligned see_the_team coordination`,
	outcome: `
		{,it_,that_,this_,its_,everything_,things_,all_,it_all_,everything_has_}{worked,worked_out,works_out,sorted}
		{,it_,that_,this_,its_}{resolved,solved,works,went_well,turned_out}
		{everything_,things_,all_,it_all_,everything_has_}{resolved,solved,works,went_well,turned_out}
		{,it_,that_,this_,its_}{turned_out_well,worked_out_well,came_together,came_together_nicely}
		{everything_,things_,all_,it_all_,everything_has_}{turned_out_well,worked_out_well}
		{everything_,things_,all_,it_all_,everything_has_}{came_together,came_together_nicely}
		{,it_,that_,this_,its_}{helped,succeeded,made_it,did_it,working_out}
		{everything_,things_,all_,it_all_,everything_has_}{helped,succeeded,made_it,did_it,working_out}
		could_{get,make,sort,resolve,solve,figure}_{this,it,that,everything,things}_{sorted,resolved,done,out}
		could_{get,make,sort,resolve,solve,figure}_{this,it,that,everything,things}_{happen,together,solved,work}
		{got,sorted,resolved}_{this,it,that,everything}_{sorted,resolved,done,out,}`,
	boon: `
		continued have has had having be been being stay enjoy helps helped help_you find found useful helpful continue again
		safe healthy happy happiness health success successful well joy peace prosperous prosperity luck fun filled
		full best productive restful relaxing bright keep keeping soon cross paths meet next work_together_again
		chance opportunity everyone_well better more come dreams sweet hear_from_you collaborating success_in
		good_things things yours year wonderful lovely fantastic great nice good amazing time times evening night
		day weekend trip launch wonderful_time gets_some_well_deserved_rest well_deserved rest get gets some you_all
		everyone the_team movie ride flight meal visit appointment event concert dinner holiday
		holidays`,
	glue: `
		has_been have_been
		a an the of to for with in at by as from am be been being had have and or that this it than into over
		through across between while because since lot bit like way ways`,
	copula: `
		is are was were`,
}
